package devicetainteviction

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/controller"
)

const (
	evictionReason = "DeviceTaintManagerEviction"
	targetReason   = "DeletionByDeviceTaintManager"
)

// decidePod evicts a pod when its time has come, and tells it if it was to be evicted and is not any more. evicted is called
// with 1 before it is evicted, and with -1 if that failed.
func decidePod(pod *corev1.Pod, e *eviction, planned bool, now time.Time, evicted func(n int)) controller.Decision {
	if e == nil {
		if !planned {
			return controller.Nothing
		}
		return controller.Decision{Actions: []controller.Action{controller.Event(pod, corev1.EventTypeNormal, evictionReason, "Cancelling deletion")}}
	}
	if wait := e.at.Sub(now); wait > 0 {
		return controller.Decision{RequeueAfter: wait}
	}
	evicted(1)
	actions := []controller.Action{controller.Event(pod, corev1.EventTypeNormal, evictionReason, "Marking for deletion")}
	if patch := mark(pod, now); patch != nil {
		actions = append(actions, controller.Patch(pod, "status", types.StrategicMergePatchType, patch))
	}
	return controller.Decision{Actions: append(actions, controller.Delete(pod, metav1.DeleteOptions{})), Then: func(err error) controller.Decision {
		if err != nil {
			evicted(-1)
		}
		if apierrors.IsNotFound(err) {
			return controller.Nothing // it was deleted meanwhile
		}
		return controller.Decision{Err: err}
	}}
}

// mark returns the patch that adds the DisruptionTarget condition to a pod, or nil if it has it.
func mark(pod *corev1.Pod, now time.Time) []byte {
	c := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: targetReason, Message: "Device Taint manager: deleting due to NoExecute taint",
		LastTransitionTime: metav1.NewTime(now)}
	for _, has := range pod.Status.Conditions {
		if has.Type != c.Type {
			continue
		}
		if has.Status == c.Status {
			c.LastTransitionTime = has.LastTransitionTime
		}
		if has.Status == c.Status && has.Reason == c.Reason && has.Message == c.Message {
			return nil
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": map[string]any{"conditions": []corev1.PodCondition{c}}})
	if err != nil {
		panic(fmt.Sprintf("failed to encode a pod condition: %v", err))
	}
	return patch
}
