package runtimeclass_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/runtimeclass"
	"skiff/internal/apiserver/objects/objectstest"
	"skiff/internal/catalog"
)

// lagging is a store whose cache is empty.
type lagging struct{ *objectstest.Store }

func (lagging) Get(schema.GroupResource, string, string) catalog.Object { return nil }

func TestRuntimeClass(t *testing.T) {
	s := objectstest.New()
	for _, class := range []string{
		`{metadata: {name: plain}, handler: h}`,
		`{metadata: {name: heavy}, handler: h, overhead: {podFixed: {cpu: 100m, memory: 1Gi}}}`,
		`{metadata: {name: picky}, handler: h, scheduling: {nodeSelector: {a: "1", b: "2"}, tolerations: [{key: x, operator: Exists}, {key: y, operator: Equal, value: v}]}}`,
	} {
		s.Put(nodev1.Resource("runtimeclasses"), admissiontest.Parse(t, &nodev1.RuntimeClass{}, class))
	}
	for _, c := range []struct{ name, spec, want, refusal string }{
		{"no class", `{}`, `{}`, ""},
		{"own overhead", `{overhead: {cpu: 1}}`, "", `pods "p" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead`},
		{"a class that is not there", `{runtimeClassName: none}`, "", `pods "p" is forbidden: pod rejected: RuntimeClass "none" not found`},
		{"a class that asks for nothing", `{runtimeClassName: plain}`, `{runtimeClassName: plain}`, ""},
		{"overhead with a class that has none", `{runtimeClassName: plain, overhead: {cpu: 1}}`, "",
			`pods "p" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead`},
		{"overhead", `{runtimeClassName: heavy}`, `{runtimeClassName: heavy, overhead: {cpu: 100m, memory: 1Gi}}`, ""},
		{"the same overhead", `{runtimeClassName: heavy, overhead: {cpu: "0.1", memory: 1024Mi}}`, `{runtimeClassName: heavy, overhead: {cpu: 100m, memory: 1Gi}}`, ""},
		{"another overhead", `{runtimeClassName: heavy, overhead: {cpu: 1}}`, "", `pods "p" is forbidden: pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead`},
		{"scheduling", `{runtimeClassName: picky}`,
			`{runtimeClassName: picky, nodeSelector: {a: "1", b: "2"}, tolerations: [{key: x, operator: Exists}, {key: y, operator: Equal, value: v}]}`, ""},
		{"scheduling added to the pod's", `{runtimeClassName: picky, nodeSelector: {a: "1", c: "3"}, tolerations: [{key: x, operator: Exists, effect: NoSchedule}, {key: z, operator: Exists}]}`,
			`{runtimeClassName: picky, nodeSelector: {a: "1", b: "2", c: "3"}, tolerations: [{key: z, operator: Exists}, {key: x, operator: Exists}, {key: y, operator: Equal, value: v}]}`, ""},
		{"tolerations the pod has already", `{runtimeClassName: picky, tolerations: [{operator: Exists}]}`,
			`{runtimeClassName: picky, nodeSelector: {a: "1", b: "2"}, tolerations: [{operator: Exists}]}`, ""},
		{"another place", `{runtimeClassName: picky, nodeSelector: {b: "3"}}`, "",
			`pods "p" is forbidden: conflict: runtimeClass.scheduling.nodeSelector[b] = 2; pod.spec.nodeSelector[b] = 3`},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: *admissiontest.Parse(t, &corev1.PodSpec{}, c.spec)}
			pod.Name = "p"
			admissiontest.Expect(t, admissiontest.Through(t, runtimeclass.New(s), admissiontest.Create(pod)), c.refusal)
			if c.refusal == "" {
				admissiontest.Same(t, pod.Spec, admissiontest.Parse(t, &corev1.PodSpec{}, c.want))
			}
			again := &corev1.Pod{Spec: *admissiontest.Parse(t, &corev1.PodSpec{}, c.spec)}
			again.Name = "p"
			admissiontest.Expect(t, admissiontest.Through(t, runtimeclass.New(lagging{s}), admissiontest.Create(again)), c.refusal)
		})
	}
	admissiontest.Same(t, s.Get(nodev1.Resource("runtimeclasses"), "", "picky").(*nodev1.RuntimeClass).Scheduling.NodeSelector, map[string]string{"a": "1", "b": "2"})
}
