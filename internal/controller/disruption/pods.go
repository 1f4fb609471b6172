package disruption

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/controller"
	"skiff/internal/controller/owned"
)

// staleTimeout is how long a pod may have the DisruptionTarget condition before it is being deleted.
const staleTimeout = 2 * time.Minute

// decidePod clears the DisruptionTarget condition of a pod that was to be deleted and was not, and tells of pods with more than one budget.
func decidePod(pod *corev1.Pod, budgets []controller.Key, now time.Time) controller.Decision {
	var d controller.Decision
	if len(budgets) > 1 {
		// The message is upstream's, with two spaces; nothing is chosen here but what to name.
		d.Actions = append(d.Actions, controller.Event(pod, corev1.EventTypeWarning, "MultiplePodDisruptionBudgets", "%s",
			fmt.Sprintf("Pod %q/%q matches multiple PodDisruptionBudgets.  Chose %q arbitrarily.", pod.Namespace, pod.Name, budgets[0].Name)))
	}
	condition := disruptionTarget(pod)
	if condition == nil {
		return d
	}
	if left := condition.LastTransitionTime.Add(staleTimeout).Sub(now); left > 0 {
		d.RequeueAfter = left
		return d
	}
	changed := pod.DeepCopy()
	*disruptionTarget(changed) = corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse, ObservedGeneration: pod.Generation,
		LastTransitionTime: metav1.NewTime(now)}
	d.Actions = append(d.Actions, controller.UpdateStatus(changed))
	return d
}

// disruptionTarget returns the condition of a pod that says that it is to be deleted, unless it is being deleted or terminal, or its kubelet ends it,
// which may take any time.
func disruptionTarget(pod *corev1.Pod) *corev1.PodCondition {
	if !owned.Active(pod) {
		return nil
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.DisruptionTarget {
			if c.Status == corev1.ConditionTrue && c.Reason != corev1.PodReasonTerminationByKubelet {
				return c
			}
			return nil
		}
	}
	return nil
}
