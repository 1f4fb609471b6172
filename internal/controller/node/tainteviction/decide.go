package tainteviction

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"skiff/internal/controller"
)

// observed holds the state that a decision about a pod is made from.
type observed struct {
	key     controller.Key
	pod     *corev1.Pod    // nil if it was deleted
	node    *corev1.Node   // nil if it was deleted
	taints  []corev1.Taint // the node's NoExecute taints
	planned *plan          // the eviction that is scheduled; nil if none is, or the loop was restarted
}

// plan is a scheduled eviction of a pod. It is remembered so that an Event can say when it is cancelled, and so that its time stays, whichever
// taints are added and removed meanwhile.
type plan struct {
	uid     types.UID
	at      time.Time
	started bool // the eviction is being carried out
}

// decide returns what to do about a pod now, and the eviction that is scheduled for later.
func decide(o observed, now time.Time) (controller.Decision, *plan) {
	var cancelled []controller.Action // the Event about an eviction that is cancelled
	if p := o.planned; p != nil && !p.started {
		cancelled = []controller.Action{event(o.key, p.uid, "Cancelling deletion of Pod %s")}
	}
	switch {
	case o.pod == nil:
		return controller.Decision{Actions: cancelled}, nil
	case o.planned != nil && o.planned.uid != o.pod.UID: // another pod has taken its name
		o.planned = nil
		d, p := decide(o, now)
		d.Actions = append(cancelled, d.Actions...)
		return d, p
	case o.pod.DeletionTimestamp != nil && marked(o.pod):
		return controller.Nothing, nil // the kubelet has to terminate it
	case o.node == nil && o.planned == nil:
		return controller.Nothing, nil
	case o.node != nil && len(o.taints) == 0:
		return controller.Decision{Actions: cancelled}, nil
	}
	if o.node != nil { // the deletion of a node changes no plan
		stay, forever, all := tolerated(o.taints, o.pod.Spec.Tolerations)
		switch {
		case !all:
			d := evict(o.pod, now)
			d.Actions = append(cancelled, d.Actions...)
			return d, nil
		case forever:
			return controller.Decision{Actions: cancelled}, nil
		case o.planned == nil:
			o.planned = &plan{uid: o.pod.UID, at: since(o, now).Add(stay)}
		}
	}
	if wait := o.planned.at.Sub(now); wait > 0 {
		return controller.Decision{RequeueAfter: wait}, o.planned
	}
	return evict(o.pod, now), &plan{uid: o.pod.UID, at: o.planned.at, started: true}
}

// tolerated returns how long tolerations let a pod stay: the shortest tolerationSeconds counts. all is false if a taint is not tolerated.
func tolerated(taints []corev1.Taint, tolerations []corev1.Toleration) (stay time.Duration, forever, all bool) {
	forever = true
	for _, taint := range taints {
		i := slices.IndexFunc(tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Logger{}, &taint, false) })
		if i < 0 {
			return 0, false, false
		}
		if seconds := tolerations[i].TolerationSeconds; seconds != nil {
			this := time.Duration(max(*seconds, 0)) * time.Second
			if forever || this < stay {
				stay = this
			}
			forever = false
		}
	}
	return stay, forever, true
}

// since returns when a pod began to tolerate its node's taints: when the last of them was added, or when the pod was bound to the node, if that was
// later. If that was just now or is not known, it is now. Times in the API are whole seconds; one is added so that no pod is evicted too early.
func since(o observed, now time.Time) time.Time {
	began := bound(o.pod)
	for _, t := range o.taints {
		if t.TimeAdded == nil {
			return now
		}
		if t.TimeAdded.After(began) {
			began = t.TimeAdded.Time
		}
	}
	if began = began.Add(time.Second); began.Before(now) {
		return began
	}
	return now
}

func bound(pod *corev1.Pod) time.Time {
	if c := condition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

const reason = "DeletionByTaintManager"

// marked reports whether a pod's DisruptionTarget condition says already why it is deleted.
func marked(pod *corev1.Pod) bool {
	c := condition(pod, corev1.DisruptionTarget)
	return c != nil && c.Status == corev1.ConditionTrue && c.Reason == reason
}

// evict adds the DisruptionTarget condition to a pod, so that its failure is not held against it, and deletes it.
func evict(pod *corev1.Pod, now time.Time) controller.Decision {
	var actions []controller.Action
	if !marked(pod) {
		actions = append(actions, controller.Patch(pod, "status", types.StrategicMergePatchType, mark(pod, now)))
	}
	actions = append(actions, controller.Delete(pod, metav1.DeleteOptions{}))
	return controller.Decision{Actions: actions, Then: func(err error) controller.Decision {
		if apierrors.IsNotFound(err) {
			return controller.Nothing // it was deleted meanwhile
		}
		if err != nil {
			return controller.Decision{Err: err}
		}
		return controller.Decision{Actions: []controller.Action{event(controller.KeyOf(pod), pod.UID, "Marking for deletion Pod %s")}}
	}}
}

func mark(pod *corev1.Pod, now time.Time) []byte {
	c := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: "Taint manager: deleting due to NoExecute taint",
		ObservedGeneration: pod.Generation, LastTransitionTime: metav1.NewTime(now)}
	if before := condition(pod, corev1.DisruptionTarget); before != nil && before.Status == c.Status {
		c.LastTransitionTime = before.LastTransitionTime
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   map[string]any{"conditions": []corev1.PodCondition{c}},
	})
	if err != nil {
		panic(fmt.Sprintf("failed to encode a pod condition: %v", err))
	}
	return patch
}

func event(key controller.Key, uid types.UID, format string) controller.Action {
	about := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: uid}}
	return controller.Event(about, corev1.EventTypeNormal, "TaintManagerEviction", format, key)
}
