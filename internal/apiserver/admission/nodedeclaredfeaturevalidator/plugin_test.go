package nodedeclaredfeaturevalidator_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/nodedeclaredfeaturevalidator"
	"skiff/internal/apiserver/objects/objectstest"
)

func TestUpdates(t *testing.T) {
	store := objectstest.New()
	for _, node := range []string{
		`{metadata: {name: old}}`,
		`{metadata: {name: new}, status: {declaredFeatures: [InPlacePodLevelResourcesVerticalScaling, InPlacePodVerticalScalingInitContainers]}}`,
	} {
		store.Put(corev1.Resource("nodes"), admissiontest.Parse(t, &corev1.Node{}, node))
	}
	const missing = `pods "p" is forbidden: pod update requires features `
	for _, c := range []struct{ name, node, before, after, refusal string }{
		{"nothing that needs a feature", "old", `containers: [{name: c}]`, `containers: [{name: c, image: new}]`, ""},
		{"resources of the pod", "old", `resources: {requests: {cpu: 1}}`, `resources: {requests: {cpu: 2}}`, missing + `InPlacePodLevelResourcesVerticalScaling which are not available on node "old"`},
		{"resources of the pod, where they can", "new", `resources: {requests: {cpu: 1}}`, `resources: {requests: {cpu: 2}}`, ""},
		{"two features", "old", `resources: {requests: {cpu: 1}}, initContainers: [{name: i}]`, `resources: {requests: {cpu: 2}}, initContainers: [{name: i, resources: {requests: {cpu: 1}}}]`,
			missing + `InPlacePodLevelResourcesVerticalScaling, InPlacePodVerticalScalingInitContainers which are not available on node "old"`},
		{"no such node", "none", `resources: {requests: {cpu: 1}}`, `resources: {requests: {cpu: 2}}`, `pods "p" is forbidden: node "none" not found`},
		{"no node yet", "", `resources: {requests: {cpu: 1}}`, `resources: {requests: {cpu: 2}}`, ""},
		{"containers that were not there", "old", ``, `initContainers: [{name: i, resources: {requests: {cpu: 1}}}]`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := func(generation, spec string) *corev1.Pod {
				return admissiontest.Parse(t, &corev1.Pod{}, `{metadata: {name: p, generation: `+generation+`}, spec: {nodeName: "`+c.node+`", `+spec+`}}`)
			}
			plugin := nodedeclaredfeaturevalidator.New(store)
			for _, subresource := range []string{"", "resize"} {
				a := admissiontest.Subresource(admissiontest.Update(pod("2", c.after), pod("1", c.before)), &corev1.Pod{}, subresource)
				admissiontest.Expect(t, admissiontest.Through(t, plugin, a), c.refusal)
				a.Old = pod("2", c.before)
				admissiontest.Expect(t, admissiontest.Through(t, plugin, a), "")
			}
			a := admissiontest.Subresource(admissiontest.Update(pod("2", c.after), pod("1", c.before)), &corev1.Pod{}, "status")
			admissiontest.Expect(t, admissiontest.Through(t, plugin, a), "")
		})
	}
}
