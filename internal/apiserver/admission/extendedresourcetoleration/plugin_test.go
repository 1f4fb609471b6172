package extendedresourcetoleration_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/extendedresourcetoleration"
)

func TestTolerations(t *testing.T) {
	const (
		device1 = `{key: example.com/device1, operator: Exists, effect: NoSchedule}`
		device2 = `{key: example.com/device2, operator: Exists, effect: NoSchedule}`
	)
	for _, c := range []struct{ name, spec, want string }{
		{"nothing is requested", `containers: [{name: c}]`, ``},
		{"native resources", `containers: [{name: c, resources: {requests: {cpu: 1, hugepages-2Mi: 1, kubernetes.io/a: 1, requests.example.com/b: 1}}}]`, ``},
		{"containers of both kinds, sorted", `initContainers: [{name: i, resources: {requests: {example.com/device1: 1}}}], containers: [{name: c, resources: {requests: {example.com/device2: 1, cpu: 1}}}, {name: d, resources: {requests: {example.com/device2: 1}}}]`,
			device1 + "," + device2},
		{"one that it has", `tolerations: [{key: a}, ` + device1 + `], containers: [{name: c, resources: {requests: {example.com/device1: 1}}}]`, `{key: a}, ` + device1},
		{"one that ends", `tolerations: [{key: example.com/device1, operator: Exists, effect: NoSchedule, tolerationSeconds: 5}], containers: [{name: c, resources: {requests: {example.com/device1: 1}}}]`, device1},
		{"others of the key", `tolerations: [{key: example.com/device1, operator: Equal, effect: NoSchedule}], containers: [{name: c, resources: {requests: {example.com/device1: 1}}}]`,
			`{key: example.com/device1, operator: Equal, effect: NoSchedule}, ` + device1},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := admissiontest.Parse(t, &corev1.Pod{}, `{spec: {`+c.spec+`}}`)
			admissiontest.Expect(t, admissiontest.Through(t, extendedresourcetoleration.New(), admissiontest.Create(pod)), "")
			admissiontest.Same(t, corev1.PodSpec{Tolerations: pod.Spec.Tolerations}, admissiontest.Parse(t, &corev1.PodSpec{}, `{tolerations: [`+c.want+`]}`))
		})
	}
}
