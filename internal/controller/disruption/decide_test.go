package disruption

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"skiff/internal/controller/stories"
)

// A status that lost to another write, such as an eviction, is computed anew from what that one wrote. Writing that the budget has failed would be
// wrong, and so would be trying the same again.
func TestConflict(t *testing.T) {
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1))}}
	d := decide(observed{budget: budget, pods: []*corev1.Pod{{}, {}}}, stories.Epoch)
	if len(d.Actions) != 1 || d.Then == nil {
		t.Fatalf("%v", d)
	}
	conflict := apierrors.NewConflict(policyv1.Resource("poddisruptionbudgets"), "b", nil)
	if d := d.Then(conflict); len(d.Actions) != 0 || !apierrors.IsConflict(d.Err) {
		t.Errorf("after a conflict: %v", d)
	}
	if d := d.Then(apierrors.NewNotFound(policyv1.Resource("poddisruptionbudgets"), "b")); len(d.Actions) != 0 || d.Err != nil {
		t.Errorf("after it was deleted: %v", d)
	}
	if d := d.Then(nil); len(d.Actions) != 0 || d.Err != nil || d.RequeueAfter != 0 {
		t.Errorf("after it was written: %v", d)
	}
}
