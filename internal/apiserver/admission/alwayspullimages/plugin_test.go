package alwayspullimages_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/alwayspullimages"
)

func pod(t *testing.T, spec string) *corev1.Pod {
	return admissiontest.Parse(t, &corev1.Pod{}, `{metadata: {namespace: ns, name: p}, spec: `+spec+`}`)
}

const (
	before = `{initContainers: [{name: i, image: a}], containers: [{name: c, image: b, imagePullPolicy: Never}, {name: d, image: b, imagePullPolicy: IfNotPresent}],
		ephemeralContainers: [{name: e, image: c}], volumes: [{name: v, image: {reference: r, pullPolicy: Never}}, {name: w, emptyDir: {}}]}`
	after = `{initContainers: [{name: i, image: a, imagePullPolicy: Always}], containers: [{name: c, image: b, imagePullPolicy: Always}, {name: d, image: b, imagePullPolicy: Always}],
		ephemeralContainers: [{name: e, image: c, imagePullPolicy: Always}], volumes: [{name: v, image: {reference: r, pullPolicy: Always}}, {name: w, emptyDir: {}}]}`
)

func TestImagesAreAlwaysPulled(t *testing.T) {
	for _, c := range []struct {
		name, old, want string
	}{
		{"a new pod", "", after},
		{"an update with an image that is new", `{containers: [{name: c, image: a}]}`, after},
		{"an update whose images were all there, in other containers", `{containers: [{name: c, image: c}, {name: d, image: b}, {name: e, image: a}]}`, before},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := pod(t, before)
			a := admissiontest.Create(p)
			if c.old != "" {
				a = admissiontest.Update(p, pod(t, c.old))
			}
			admissiontest.Expect(t, admissiontest.Through(t, alwayspullimages.New(), a), "")
			admissiontest.Same(t, p, pod(t, c.want))
		})
	}
}

func TestOthersAreRefused(t *testing.T) {
	validate := func(p *corev1.Pod) error {
		return alwayspullimages.New().(admission.Validator).Validate(t.Context(), admissiontest.Create(p))
	}
	const refused = `pods "p" is forbidden: spec.`
	admissiontest.Expect(t, validate(pod(t, after)), "")
	admissiontest.Expect(t, validate(pod(t, `{containers: [{name: c, imagePullPolicy: Never}]}`)),
		refused+`containers[0].imagePullPolicy: Unsupported value: "Never": supported values: "Always"`)
	admissiontest.Expect(t, validate(pod(t, before)), `[`+refused+`initContainers[0].imagePullPolicy: Unsupported value: "": supported values: "Always", `+
		refused+`containers[0].imagePullPolicy: Unsupported value: "Never": supported values: "Always", `+
		refused+`containers[1].imagePullPolicy: Unsupported value: "IfNotPresent": supported values: "Always", `+
		refused+`ephemeralContainers[0].imagePullPolicy: Unsupported value: "": supported values: "Always", `+
		refused+`volumes[0].image.pullPolicy: Unsupported value: "Never": supported values: "Always"]`)
}

func TestSubresourcesStayAsTheyAre(t *testing.T) {
	p := pod(t, before)
	admissiontest.Expect(t, admissiontest.Through(t, alwayspullimages.New(), admissiontest.Subresource(admissiontest.Update(p, pod(t, `{containers: []}`)), p, "ephemeralcontainers")), "")
	admissiontest.Same(t, p, pod(t, before))
}
