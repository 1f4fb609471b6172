package podresizevalidator_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/podresizevalidator"
	"skiff/internal/apiserver/objects/objectstest"
)

func TestResizes(t *testing.T) {
	store := objectstest.New()
	for _, node := range []string{
		`{metadata: {name: linux, labels: {kubernetes.io/os: linux}}, status: {allocatable: {cpu: 2, memory: 1Gi}}}`,
		`{metadata: {name: unlabelled}, status: {allocatable: {cpu: 2, memory: 1Gi}}}`,
		`{metadata: {name: other, labels: {kubernetes.io/os: windows}}, status: {allocatable: {cpu: 2, memory: 1Gi}}}`,
	} {
		store.Put(corev1.Resource("nodes"), admissiontest.Parse(t, &corev1.Node{}, node))
	}
	pod := func(generation, spec string) *corev1.Pod {
		return admissiontest.Parse(t, &corev1.Pod{}, `{metadata: {name: p, generation: `+generation+`}, spec: `+spec+`}`)
	}
	const (
		small = `containers: [{name: c, resources: {requests: {cpu: 2, memory: 1Gi}}}]`
		large = `containers: [{name: c, resources: {requests: {cpu: 1500m, memory: 1Gi}}}, {name: d, resources: {requests: {cpu: 501m, memory: 1}}}]`
	)
	for _, c := range []struct{ name, spec, old, refusal, cause string }{
		{"what the node has", `{nodeName: linux, ` + small + `}`, "1", "", ""},
		{"too much", `{nodeName: linux, ` + large + `}`, "1", `pods "p" is forbidden: node didn't have enough allocatable resources: cpu, requested: 2001, allocatable: 2000; memory, requested: 1073741825, allocatable: 1073741824`, "NodeCapacity"},
		{"too much at the level of the pod", `{nodeName: linux, resources: {requests: {cpu: 3}}, ` + small + `}`, "1", `pods "p" is forbidden: node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000`, "NodeCapacity"},
		{"too much, but nothing is changed", `{nodeName: linux, ` + large + `}`, "2", "", ""},
		{"too much, but on no node", `{` + large + `}`, "1", "", ""},
		{"a node without the label", `{nodeName: unlabelled, ` + small + `}`, "1", "", ""},
		{"another system", `{nodeName: other, ` + small + `}`, "1", `pods "p" is forbidden: pod resize is only supported on linux nodes, node "other" is "windows"`, "UnsupportedPlatform"},
		{"no such node", `{nodeName: none, ` + small + `}`, "1", `pods "p" is forbidden: node "none" not found`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			new, old := pod("2", c.spec), pod(c.old, `{containers: []}`)
			err := admissiontest.Through(t, podresizevalidator.New(store), admissiontest.Subresource(admissiontest.Update(new, old), new, "resize"))
			admissiontest.Expect(t, err, c.refusal)
			if status := (*apierrors.StatusError)(nil); errors.As(err, &status) {
				causes := status.ErrStatus.Details.Causes
				if c.cause == "" && len(causes) > 0 || c.cause != "" && (len(causes) != 1 || string(causes[0].Type) != c.cause) {
					t.Errorf("the causes are %v, want %s", causes, c.cause)
				}
			}
			admissiontest.Expect(t, admissiontest.Through(t, podresizevalidator.New(store), admissiontest.Update(new, old)), "")
		})
	}
}
