package limitranger_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/limitranger"
	"skiff/internal/apiserver/objects/objectstest"
)

func plugin(t testing.TB, ranges ...string) admission.Plugin {
	s := objectstest.New()
	for i, limits := range ranges {
		r := admissiontest.Parse(t, &corev1.LimitRange{}, `{metadata: {namespace: ns}, spec: {limits: `+limits+`}}`)
		r.Name = string(rune('a' + i))
		s.Put(corev1.Resource("limitranges"), r)
	}
	return limitranger.New(s)
}

func TestDefaults(t *testing.T) {
	for _, c := range []struct {
		name      string
		ranges    []string
		pod, want string
	}{
		{"no limit range", nil, `{spec: {containers: [{name: c}]}}`, `{spec: {containers: [{name: c}]}}`},
		{"missing values are set and listed in the annotation", []string{`[{type: Container, defaultRequest: {cpu: 100m, memory: 1Gi}, default: {cpu: 200m}}]`},
			`{spec: {containers: [{name: c}, {name: d, resources: {requests: {cpu: 1}, limits: {cpu: 2}}}], initContainers: [{name: i}]}}`,
			`{metadata: {annotations: {kubernetes.io/limit-ranger: "LimitRanger plugin set: cpu, memory request for container c; cpu limit for container c; memory request for container d; ` +
				`cpu, memory request for init container i; cpu limit for init container i"}},
			  spec: {containers: [{name: c, resources: {requests: {cpu: 100m, memory: 1Gi}, limits: {cpu: 200m}}}, {name: d, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2}}}],
			  initContainers: [{name: i, resources: {requests: {cpu: 100m, memory: 1Gi}, limits: {cpu: 200m}}}]}}`},
		{"the first limit range that has a default wins", []string{`[{type: Container, default: {cpu: 1}}]`, `[{type: Container, default: {cpu: 2, memory: 1}}]`},
			`{spec: {containers: [{name: c}]}}`,
			`{metadata: {annotations: {kubernetes.io/limit-ranger: "LimitRanger plugin set: memory limit for container c"}}, spec: {containers: [{name: c, resources: {limits: {cpu: 1, memory: 1}}}]}}`},
		{"all values set", []string{`[{type: Container, default: {cpu: 1}}]`}, `{spec: {containers: [{name: c, resources: {limits: {cpu: 5}}}]}}`, `{spec: {containers: [{name: c, resources: {limits: {cpu: 5}}}]}}`},
		{"defaults of pods are none", []string{`[{type: Pod, default: {cpu: 1}}]`}, `{spec: {containers: [{name: c}]}}`, `{spec: {containers: [{name: c}]}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := admissiontest.Parse(t, &corev1.Pod{}, c.pod)
			want := admissiontest.Parse(t, &corev1.Pod{}, c.want)
			pod.Namespace, want.Namespace = "ns", "ns"
			admissiontest.Expect(t, admissiontest.Through(t, plugin(t, c.ranges...), admissiontest.Create(pod)), "")
			admissiontest.Same(t, pod, want)
		})
	}
}

func TestPods(t *testing.T) {
	const forbidden = `pods "p" is forbidden: `
	for _, c := range []struct{ name, limits, spec, want string }{
		{"within", `[{type: Container, min: {cpu: 50m}, max: {cpu: 2}, maxLimitRequestRatio: {cpu: 4}}]`, `{containers: [{name: c, resources: {requests: {cpu: 500m}, limits: {cpu: 2}}}]}`, ""},
		{"too little", `[{type: Container, min: {cpu: 50m}}]`, `{containers: [{name: c, resources: {requests: {cpu: 40m}, limits: {cpu: 1}}}]}`,
			forbidden + "minimum cpu usage per Container is 50m, but request is 40m"},
		{"a limit that is too little", `[{type: Container, min: {cpu: 50m}}]`, `{containers: [{name: c, resources: {requests: {cpu: 50m}, limits: {cpu: 40m}}}]}`,
			forbidden + "minimum cpu usage per Container is 50m, but limit is 40m"},
		{"nothing requested", `[{type: Container, min: {cpu: 50m}, max: {memory: 1Gi}}]`, `{containers: [{name: c}]}`,
			forbidden + "[minimum cpu usage per Container is 50m.  No request is specified, maximum memory usage per Container is 1Gi.  No limit is specified]"},
		{"too much", `[{type: Container, max: {cpu: 1}}]`, `{containers: [{name: c, resources: {requests: {cpu: 1}, limits: {cpu: 2}}}]}`, forbidden + "maximum cpu usage per Container is 1, but limit is 2"},
		{"a request that is too much", `[{type: Container, max: {cpu: 1}}]`, `{containers: [{name: c, resources: {requests: {cpu: 2}, limits: {cpu: 1}}}]}`,
			forbidden + "maximum cpu usage per Container is 1, but request is 2"},
		{"init containers too", `[{type: Container, max: {cpu: 1}}]`, `{containers: [{name: c, resources: {limits: {cpu: 1}}}], initContainers: [{name: i, resources: {limits: {cpu: 3}}}]}`,
			forbidden + "maximum cpu usage per Container is 1, but limit is 3"},
		{"ratio", `[{type: Container, maxLimitRequestRatio: {memory: 1500m}}]`, `{containers: [{name: c, resources: {requests: {memory: 1Gi}, limits: {memory: 2Gi}}}]}`,
			forbidden + "memory max limit to request ratio per Container is 1500m, but provided ratio is 2.000000"},
		{"ratio without a request", `[{type: Container, maxLimitRequestRatio: {memory: 2}}]`, `{containers: [{name: c, resources: {requests: {memory: 0}, limits: {memory: 2Gi}}}]}`,
			forbidden + "memory max limit to request ratio per Container is 2, but no request is specified or request is 0"},
		{"ratio without a limit", `[{type: Container, maxLimitRequestRatio: {memory: 2}}]`, `{containers: [{name: c, resources: {requests: {memory: 1}}}]}`,
			forbidden + "memory max limit to request ratio per Container is 2, but no limit is specified or limit is 0"},
		{"the sum of a pod", `[{type: Pod, max: {cpu: 2}}]`, `{containers: [{name: c, resources: {limits: {cpu: 1}}}, {name: d, resources: {limits: {cpu: 1500m}}}]}`,
			forbidden + "maximum cpu usage per Pod is 2, but limit is 2500m"},
		{"the largest init container", `[{type: Pod, max: {cpu: 2}}]`, `{containers: [{name: c, resources: {limits: {cpu: 1}}}], initContainers: [{name: i, resources: {limits: {cpu: 3}}}]}`,
			forbidden + "maximum cpu usage per Pod is 2, but limit is 3"},
		{"the pod's own", `[{type: Pod, max: {cpu: 2}}]`, `{resources: {limits: {cpu: 2}}, containers: [{name: c, resources: {limits: {cpu: 5}}}]}`, ""},
		{"overhead does not count", `[{type: Pod, max: {cpu: 2}}]`, `{overhead: {cpu: 1}, containers: [{name: c, resources: {limits: {cpu: 2}}}]}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: *admissiontest.Parse(t, &corev1.PodSpec{}, c.spec)}
			pod.Namespace, pod.Name = "ns", "p"
			admissiontest.Expect(t, admissiontest.Through(t, plugin(t, c.limits), admissiontest.Create(pod)), c.want)
		})
	}
}

func TestHandledWrites(t *testing.T) {
	limits := plugin(t, `[{type: Container, max: {cpu: 1}}]`, `[{type: PersistentVolumeClaim, min: {storage: 1Gi}, max: {storage: 2Gi}}]`)
	pod := func(meta string) *corev1.Pod {
		return admissiontest.Parse(t, &corev1.Pod{}, `{metadata: `+meta+`, spec: {containers: [{name: c, resources: {limits: {cpu: 2}}}]}}`)
	}
	claim := func(size string) *corev1.PersistentVolumeClaim {
		return admissiontest.Parse(t, &corev1.PersistentVolumeClaim{}, `{metadata: {namespace: ns, name: d}, spec: {resources: {requests: `+size+`}}}`)
	}
	const here = `{namespace: ns, name: p}`
	ending := pod(`{namespace: ns, name: p, deletionTimestamp: "2026-01-01T00:00:00Z"}`)
	for _, c := range []struct {
		name  string
		write *admission.Attributes
		want  string
	}{
		{"a resize", admissiontest.Subresource(admissiontest.Update(pod(here), pod(here)), ending, "resize"), `pods "p" is forbidden: maximum cpu usage per Container is 1, but limit is 2`},
		{"a resize of a pod that ends", admissiontest.Subresource(admissiontest.Update(pod(here), ending), ending, "resize"), ""},
		{"an update cannot change resources", admissiontest.Update(pod(here), pod(here)), ""},
		{"a status", admissiontest.Subresource(admissiontest.Update(pod(here), pod(here)), ending, "status"), ""},
		{"another namespace", admissiontest.Create(pod(`{namespace: other, name: p}`)), ""},
		{"a small claim", admissiontest.Create(claim(`{storage: 1Mi}`)), `persistentvolumeclaims "d" is forbidden: minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi`},
		{"a claim that grew too large", admissiontest.Update(claim(`{storage: 3Gi}`), claim(`{storage: 1Gi}`)),
			`persistentvolumeclaims "d" is forbidden: maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi`},
		{"a claim for nothing", admissiontest.Create(claim(`{}`)), `persistentvolumeclaims "d" is forbidden: [minimum storage usage per PersistentVolumeClaim is 1Gi.  No request is specified, ` +
			`maximum storage usage per PersistentVolumeClaim is 2Gi.  No request is specified]`},
		{"a claim that fits", admissiontest.Create(claim(`{storage: 2Gi}`)), ""},
		{"other objects", admissiontest.Create(&corev1.Secret{}), ""},
	} {
		t.Run(c.name, func(t *testing.T) { admissiontest.Expect(t, admissiontest.Through(t, limits, c.write), c.want) })
	}
}
