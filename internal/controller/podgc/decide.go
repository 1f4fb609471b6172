package podgc

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"skiff/internal/controller"
)

// observed holds the state that a decision is made from.
type observed struct {
	pods         []*corev1.Pod
	nodes        map[string]*corev1.Node
	missingNodes map[string]bool // nodes that are known not to exist
	threshold    int             // how many terminated pods are kept; all of them if it is not positive
}

// deletion is a pod to delete.
type deletion struct {
	pod     *corev1.Pod
	reason  string
	actions []controller.Action
}

// decide returns which pods to delete, and how.
func decide(seen observed, now time.Time) []deletion {
	var out []deletion
	var finished []*corev1.Pod
	for _, pod := range seen.pods {
		node := seen.nodes[pod.Spec.NodeName]
		switch {
		case seen.missingNodes[pod.Spec.NodeName]:
			out = append(out, deletePod(pod, "its node no longer exists", now, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
				ObservedGeneration: pod.Generation, Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists"}))
		case pod.DeletionTimestamp != nil && pod.Spec.NodeName == "":
			out = append(out, deletePod(pod, "it is ending and never had a node", now))
		case pod.DeletionTimestamp != nil && node != nil && outOfService(node):
			out = append(out, deletePod(pod, "it is ending on a node that is out of service", now))
		case isTerminated(pod):
			finished = append(finished, pod)
		}
	}
	if extra := len(finished) - seen.threshold; seen.threshold > 0 && extra > 0 {
		slices.SortFunc(finished, evictedThenOldest)
		for _, pod := range finished[:extra] {
			out = append(out, deletePod(pod, "there are too many finished pods", now))
		}
	}
	return out
}

// isTerminated reports whether a pod will not run again.
func isTerminated(pod *corev1.Pod) bool {
	switch pod.Status.Phase {
	case corev1.PodPending, corev1.PodRunning, corev1.PodUnknown:
		return false
	}
	return true
}

// outOfService reports whether a node that is not ready has the out-of-service taint: an administrator declared that nothing runs there any more.
func outOfService(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return false
		}
	}
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// evictedThenOldest sorts evicted pods first, then the oldest.
func evictedThenOldest(a, b *corev1.Pod) int {
	if evicted(a) != evicted(b) {
		if evicted(a) {
			return -1
		}
		return 1
	}
	if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
		return order
	}
	return strings.Compare(a.Name, b.Name)
}

func evicted(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == "Evicted"
}

// deletePod deletes a pod without waiting for its kubelet. A pod that has not terminated is set to Failed first, as no kubelet will do so: its
// owner has to know how it ended.
func deletePod(pod *corev1.Pod, reason string, now time.Time, conditions ...corev1.PodCondition) deletion {
	d := deletion{pod: pod, reason: reason}
	if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		before := pod.Status.DeepCopy() // encoding modifies quantities
		after := before.DeepCopy()
		after.Phase, after.ObservedGeneration = corev1.PodFailed, pod.Generation
		for _, condition := range conditions {
			setCondition(after, condition, now)
		}
		d.actions = append(d.actions, controller.Patch(pod, "status", types.StrategicMergePatchType, statusPatch(pod.UID, before, after)))
	}
	d.actions = append(d.actions, controller.Delete(pod, *metav1.NewDeleteOptions(0)))
	return d
}

// setCondition sets a condition. lastTransitionTime changes only with the status.
func setCondition(status *corev1.PodStatus, condition corev1.PodCondition, now time.Time) {
	condition.LastTransitionTime = metav1.NewTime(now)
	i := slices.IndexFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == condition.Type })
	if i < 0 {
		status.Conditions = append(status.Conditions, condition)
		return
	}
	if status.Conditions[i].Status == condition.Status {
		condition.LastTransitionTime = status.Conditions[i].LastTransitionTime
	}
	status.Conditions[i] = condition
}

// statusPatch returns a patch between two states of a pod. It names the uid, so that no other pod of that name is changed.
func statusPatch(uid types.UID, before, after *corev1.PodStatus) []byte {
	was, err := json.Marshal(corev1.Pod{Status: *before})
	if err == nil {
		var is, patch []byte
		if is, err = json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Status: *after}); err == nil {
			if patch, err = strategicpatch.CreateTwoWayMergePatch(was, is, corev1.Pod{}); err == nil {
				return patch
			}
		}
	}
	panic(fmt.Sprintf("failed to compute a pod status patch: %v", err)) // cannot happen: both are plain data
}
