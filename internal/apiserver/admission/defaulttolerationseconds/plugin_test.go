package defaulttolerationseconds_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/defaulttolerationseconds"
)

func TestTolerations(t *testing.T) {
	const (
		notReady    = `{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 30}`
		unreachable = `{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 300}`
	)
	for _, c := range []struct{ name, given, want string }{
		{"a pod without tolerations gets both", ``, notReady + "," + unreachable},
		{"others stay", `{key: a, operator: Exists}`, `{key: a, operator: Exists},` + notReady + "," + unreachable},
		{"what the pod says of one stays", `{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 5}`,
			`{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 5},` + unreachable},
		{"an empty effect is every effect", `{key: node.kubernetes.io/unreachable, operator: Exists}`, `{key: node.kubernetes.io/unreachable, operator: Exists},` + notReady},
		{"an empty key is every key", `{operator: Exists}`, `{operator: Exists}`},
		{"but not of another effect", `{operator: Exists, effect: NoSchedule}`, `{operator: Exists, effect: NoSchedule},` + notReady + "," + unreachable},
	} {
		t.Run(c.name, func(t *testing.T) {
			plugin := defaulttolerationseconds.New(defaulttolerationseconds.Options{NotReady: 30, Unreachable: 300})
			pod := admissiontest.Parse(t, &corev1.Pod{}, `{spec: {containers: [], tolerations: [`+c.given+`]}}`)
			want := admissiontest.Parse(t, &corev1.Pod{}, `{spec: {containers: [], tolerations: [`+c.want+`]}}`)
			admissiontest.Expect(t, admissiontest.Through(t, plugin, admissiontest.Create(pod)), "")
			admissiontest.Same(t, pod, want)
		})
	}
}

func TestSubresourcesStayAsTheyAre(t *testing.T) {
	pod := &corev1.Pod{}
	a := admissiontest.Subresource(admissiontest.Update(pod, &corev1.Pod{}), pod, "status")
	admissiontest.Expect(t, admissiontest.Through(t, defaulttolerationseconds.New(defaulttolerationseconds.Defaults), a), "")
	if len(pod.Spec.Tolerations) > 0 {
		t.Error("a status update got tolerations")
	}
}
