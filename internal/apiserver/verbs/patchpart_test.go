package verbs

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/apiserver/codec"
	"skiff/internal/catalog/all"
	"skiff/internal/catalog/initializers"
)

// TestOnPart: patching a part of an object gives what patching the whole of it gives, problems included, and leaves what was there alone.
func TestOnPart(t *testing.T) {
	api := &API{}
	api.Replace(&Served{Infos: all.Resources()})
	priority := int32(3)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "u", Labels: map[string]string{"a": "1", "b": "2"}, Finalizers: []string{"x/y", "x/z"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "1"}},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "m", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{}}`)}}}},
		Spec: corev1.PodSpec{Priority: &priority, NodeSelector: map[string]string{"k": "v"}, Tolerations: []corev1.Toleration{{Key: "t", Operator: "Exists"}},
			Containers: []corev1.Container{{Name: "c", Image: "i", Ports: []corev1.ContainerPort{{ContainerPort: 80, Protocol: "TCP"}}}, {Name: "d", Image: "j"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: "Ready", Status: "True"}, {Type: "Other", Status: "False"}}},
	}
	gvk := corev1.SchemeGroupVersion.WithKind("Pod")
	partly := 0
	for _, patch := range []string{
		`{}`, `null`, `[]`, `7`, `{`, `{"metadata":{"labels":{"a":"9","b":null,"c":"3"}}}`, `{"metadata":{"labels":null}}`, `{"metadata":null}`,
		`{"metadata":{"annotations":{"new":"yes"}},"spec":{"priority":null,"nodeSelector":{"k":null,"l":"w"}}}`,
		`{"metadata":{"managedFields":[{}]}}`, `{"metadata":{"managedFields":null},"status":{"phase":"Failed"}}`, `{"metadata":{"uid":"u"}}`,
		`{"metadata":{"finalizers":["x/q"]}}`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["x/y"]}}`,
		`{"metadata":{"ownerReferences":[{"uid":"1","$patch":"delete"}]}}`, `{"metadata":{"ownerReferences":[{"uid":"1","blockOwnerDeletion":true}]}}`,
		`{"spec":{"containers":[{"name":"d","image":"new"}]}}`, `{"spec":{"containers":[{"name":"c","ports":[{"containerPort":81}]}],"$setElementOrder/containers":[{"name":"d"},{"name":"c"}]}}`,
		`{"spec":{"$patch":"replace","hostNetwork":true}}`, `{"metadata":{"$patch":"replace","labels":{"x":"y"}}}`, `{"metadata":{"$retainKeys":["labels"],"labels":{"x":"y"}}}`, `{"$patch":"delete"}`, `{"$patch":"replace","spec":{}}`, `{"$retainKeys":["spec"],"spec":{}}`,
		`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Why"}]}}`, `{"status":null}`, `{"status":{"conditions":[{"type":"Other","$patch":"delete"}]}}`,
		`{"kind":"Node"}`, `{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"x":"y"}}}`, `{"nothing":1}`, `{"Spec":{"priority":1}}`, `{"spec":{"nothing":1}}`, `{"spec":{"Priority":1}}`,
		`{"spec":{"priority":"no"}}`, `{"spec":[]}`, `{"metadata":"no"}`, `{"spec":{"priority":1,"priority":2}}`, `{"spec":{},"spec":{"priority":2}}`, `{"metadata":{"creationTimestamp":"no"}}`,
	} {
		for kind, whole := range map[types.PatchType]patcher{types.MergePatchType: onJSON(applyMergePatch), types.StrategicMergePatchType: applyStrategicPatch} {
			for _, strictness := range []codec.Strictness{codec.Ignore, codec.Warn, codec.Strict} {
				apply := func(p patcher) (*corev1.Pod, string) {
					live, into := pod.DeepCopy(), &corev1.Pod{}
					resultText, strict, err := p(api, live, into, gvk, []byte(patch), strictness, nil)
					if !equality.Semantic.DeepEqual(live, pod) {
						t.Errorf("%s: %s changed what was there", kind, patch)
					}
					into.TypeMeta = metav1.TypeMeta{}
					if err != nil || len(strict) > 0 {
						return into, fmt.Sprint(resultText, strict, err)
					}
					return into, ""
				}
				counted := func(api *API, live, into runtime.Object, gvk schema.GroupVersionKind, patch []byte, strictness codec.Strictness, in **initializers.Initializers) (string, []error, error) {
					if live.(*corev1.Pod).Name == "" || live.(*corev1.Pod).ManagedFields == nil {
						partly++
					}
					return whole(api, live, into, gvk, patch, strictness, in)
				}
				want, problem := apply(whole)
				got, gotProblem := apply(onNamedFields(counted))
				if problem != gotProblem {
					t.Errorf("%s %s:\n%s\nbut of the whole\n%s", kind, patch, gotProblem, problem)
				}
				if problem == "" && !equality.Semantic.DeepEqual(got, want) {
					t.Errorf("%s %s:\n%+v\nbut of the whole\n%+v", kind, patch, got, want)
				}
			}
		}
	}
	if partly < 60 {
		t.Errorf("only %d patches were applied to a part", partly)
	}
}
