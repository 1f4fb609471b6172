package podgroupprotection_test

import (
	"slices"
	"testing"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/podgroupprotection"
	"skiff/internal/catalog"
)

func TestFinalizer(t *testing.T) {
	const finalizer = "scheduling.k8s.io/podgroup-protection"
	info := &catalog.Info{GVR: schedulingv1beta1.SchemeGroupVersion.WithResource("podgroups"), GVK: schedulingv1beta1.SchemeGroupVersion.WithKind("PodGroup")}
	for _, given := range [][]string{nil, {"a/b"}, {"a/b", finalizer}} {
		group := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Finalizers: slices.Clone(given)}}
		a := &admission.Attributes{Info: info, Operation: admission.Update, Object: group}
		admissiontest.Expect(t, admissiontest.Through(t, podgroupprotection.New(), a), "")
		if !slices.Equal(group.Finalizers, given) {
			t.Errorf("an update has set %v", group.Finalizers)
		}
		a.Operation = admission.Create
		admissiontest.Expect(t, admissiontest.Through(t, podgroupprotection.New(), a), "")
		want := slices.Clone(given)
		if !slices.Contains(given, finalizer) {
			want = append(want, finalizer)
		}
		if !slices.Equal(group.Finalizers, want) {
			t.Errorf("of %v it made %v", given, group.Finalizers)
		}
	}
}
