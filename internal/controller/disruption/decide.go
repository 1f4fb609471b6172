package disruption

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/controller"
	"skiff/internal/controller/owned"
)

// deletionTimeout is how long a pod whose eviction was allowed, which is listed in disruptedPods, is taken for disrupted before it is being deleted.
const deletionTimeout = 2 * time.Minute

// observed holds the state that a decision about a budget is made from.
type observed struct {
	budget      *policyv1.PodDisruptionBudget
	selectorErr error
	pods        []*corev1.Pod // that the budget selects, sorted by name
	// cached returns the scale of a controller that an informer holds, or nil.
	cached func(ref *metav1.OwnerReference, namespace string) (*scale, error)
	// queries holds what was read from the API about other controllers.
	queries map[types.UID]*scaleQuery
}

// decide updates the status of a budget.
func decide(o observed, now time.Time) controller.Decision {
	event := func(kind, reason, format string, args ...any) controller.Action {
		return controller.Event(o.budget, kind, reason, format, args...)
	}
	if o.selectorErr != nil {
		return failSafe(o.budget, o.selectorErr, now, event(corev1.EventTypeWarning, "NoPods", "Failed to get pods: %v", o.selectorErr))
	}
	var actions []controller.Action
	if len(o.pods) == 0 {
		actions = append(actions, event(corev1.EventTypeNormal, "NoPods", "No matching pods found"))
	}
	expected, err := o.expect()
	if err != nil {
		return failSafe(o.budget, err, now, append(actions, event(corev1.EventTypeWarning, "CalculateExpectedPodCountFailed",
			"Failed to calculate the number of expected pods: %v", err))...)
	}
	if expected.unmanaged {
		actions = append(actions, event(corev1.EventTypeWarning, "UnmanagedPods", "Pods selected by this PodDisruptionBudget (selector: %v) were found "+
			"to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. "+
			`To account for these pods please set ".spec.minAvailable" field of the PDB to an integer value.`, o.budget.Spec.Selector))
	}
	disrupted, late, requeueAfter := disruptedPods(o.budget, o.pods, now)
	for _, pod := range late {
		actions = append(actions, controller.Event(pod, corev1.EventTypeWarning, "NotDeleted", "Pod was expected by PDB %s/%s to be deleted but it wasn't",
			o.budget.Namespace, o.budget.Name))
	}
	status := policyv1.PodDisruptionBudgetStatus{ObservedGeneration: o.budget.Generation, CurrentHealthy: countHealthy(o.pods, disrupted),
		DesiredHealthy: expected.healthy, ExpectedPods: expected.pods, DisruptedPods: disrupted}
	if status.ExpectedPods > 0 { // the first pods of a budget must not be evicted before it is reconciled
		status.DisruptionsAllowed = max(status.CurrentHealthy-status.DesiredHealthy, 0)
	}
	if upToDate(o.budget, status) {
		return controller.Decision{Actions: actions, RequeueAfter: requeueAfter}
	}
	changed := o.budget.DeepCopy()
	status.Conditions = changed.Status.Conditions
	changed.Status = status
	setCondition(changed, allowed(status.DisruptionsAllowed), now)
	return controller.Decision{Actions: append(actions, controller.UpdateStatus(changed)), Then: func(err error) controller.Decision {
		if err == nil || apierrors.IsNotFound(err) {
			return controller.Decision{RequeueAfter: requeueAfter}
		}
		if apierrors.IsConflict(err) {
			return controller.Decision{Err: err} // pods have been evicted meanwhile: the caches will observe it
		}
		return failSafe(o.budget, err, now)
	}}
}

// disruptedPods returns the pods of a budget that the eviction API is about to delete, those that it should have deleted by now, and after which
// time to look at the former again; 0 if there are none.
func disruptedPods(budget *policyv1.PodDisruptionBudget, pods []*corev1.Pod, now time.Time) (disrupted map[string]metav1.Time, late []*corev1.Pod, requeueAfter time.Duration) {
	disrupted = map[string]metav1.Time{}
	for _, pod := range pods {
		at, listed := budget.Status.DisruptedPods[pod.Name]
		if !listed || pod.DeletionTimestamp != nil {
			continue
		}
		left := at.Add(deletionTimeout).Sub(now)
		if left < 0 {
			late = append(late, pod)
			continue
		}
		disrupted[pod.Name] = at
		left = max(left, time.Millisecond) // 0 is never
		if requeueAfter == 0 || left < requeueAfter {
			requeueAfter = left
		}
	}
	return disrupted, late, requeueAfter
}

// countHealthy returns how many pods are ready and neither are being deleted nor will be soon.
func countHealthy(pods []*corev1.Pod, disrupted map[string]metav1.Time) (healthy int32) {
	for _, pod := range pods {
		if _, soon := disrupted[pod.Name]; pod.DeletionTimestamp == nil && !soon && owned.Ready(pod) {
			healthy++
		}
	}
	return healthy
}

// allowed returns the condition that says whether disruptions are allowed.
func allowed(disruptions int32) metav1.Condition {
	if disruptions > 0 {
		return metav1.Condition{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionTrue, Reason: policyv1.SufficientPodsReason}
	}
	return metav1.Condition{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.InsufficientPodsReason}
}

// setCondition sets a condition of a budget's status, which is for the generation that the status is for.
func setCondition(budget *policyv1.PodDisruptionBudget, condition metav1.Condition, now time.Time) {
	condition.LastTransitionTime, condition.ObservedGeneration = metav1.NewTime(now), budget.Status.ObservedGeneration
	meta.SetStatusCondition(&budget.Status.Conditions, condition)
}

// upToDate reports whether a budget has a status, and the condition that goes with it.
func upToDate(budget *policyv1.PodDisruptionBudget, status policyv1.PodDisruptionBudgetStatus) bool {
	is, want := &budget.Status, allowed(status.DisruptionsAllowed)
	condition := meta.FindStatusCondition(is.Conditions, policyv1.DisruptionAllowedCondition)
	return is.ObservedGeneration == status.ObservedGeneration && is.CurrentHealthy == status.CurrentHealthy && is.DesiredHealthy == status.DesiredHealthy &&
		is.ExpectedPods == status.ExpectedPods && is.DisruptionsAllowed == status.DisruptionsAllowed &&
		maps.EqualFunc(is.DisruptedPods, status.DisruptedPods, func(a, b metav1.Time) bool { return a.Equal(&b) }) &&
		condition != nil && condition.Status == want.Status && condition.Reason == want.Reason
}

// failSafe lets a budget whose status cannot be computed allow no disruption, and tries again.
func failSafe(budget *policyv1.PodDisruptionBudget, cause error, now time.Time, actions ...controller.Action) controller.Decision {
	changed := budget.DeepCopy()
	changed.Status.DisruptionsAllowed = 0
	setCondition(changed, metav1.Condition{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason, Message: cause.Error()}, now)
	condition := meta.FindStatusCondition(budget.Status.Conditions, policyv1.DisruptionAllowedCondition)
	if budget.Status.DisruptionsAllowed != 0 || condition == nil || *condition != *meta.FindStatusCondition(changed.Status.Conditions, policyv1.DisruptionAllowedCondition) {
		actions = append(actions, controller.UpdateStatus(changed))
	}
	return controller.Decision{Actions: actions, Err: fmt.Errorf("failed to bring the budget's status up to date: %w", cause)}
}
