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

// observed is all that decides about a pod.
type observed struct {
	key     controller.Key
	pod     *corev1.Pod    // nil if it is gone
	node    *corev1.Node   // nil if it is gone
	taints  []corev1.Taint // the node's NoExecute ones
	planned *plan          // what was decided before; nil if nothing, or if that is forgotten
}

// plan is to evict a pod later. It is there so that people can be told when it is given up, and to keep a time that was set, whichever taints
// come and go meanwhile.
type plan struct {
	uid   types.UID
	at    time.Time
	fired bool // it is being carried out
}

// decide says what to do about a pod now, and what is planned for later.
func decide(o observed, now time.Time) (controller.Decision, *plan) {
	var given []controller.Action // what people are told of a plan that is given up
	if p := o.planned; p != nil && !p.fired {
		given = []controller.Action{tell(o.key, p.uid, "Cancelling deletion of Pod %s")}
	}
	switch {
	case o.pod == nil:
		return controller.Decision{Actions: given}, nil
	case o.planned != nil && o.planned.uid != o.pod.UID: // another pod has taken its name
		o.planned = nil
		d, p := decide(o, now)
		d.Actions = append(given, d.Actions...)
		return d, p
	case o.pod.DeletionTimestamp != nil && marked(o.pod):
		return controller.Nothing, nil // done: the node has to end it
	case o.node == nil && o.planned == nil:
		return controller.Nothing, nil
	case o.node != nil && len(o.taints) == 0:
		return controller.Decision{Actions: given}, nil
	}
	if o.node != nil { // a node that is gone changes no plans
		stay, forever, all := tolerated(o.taints, o.pod.Spec.Tolerations)
		switch {
		case !all:
			d := evict(o.pod, now)
			d.Actions = append(given, d.Actions...)
			return d, nil
		case forever:
			return controller.Decision{Actions: given}, nil
		case o.planned == nil:
			o.planned = &plan{uid: o.pod.UID, at: since(o, now).Add(stay)}
		}
	}
	if wait := o.planned.at.Sub(now); wait > 0 {
		return controller.Decision{RequeueAfter: wait}, o.planned
	}
	return evict(o.pod, now), &plan{uid: o.pod.UID, at: o.planned.at, fired: true}
}

// tolerated says how long tolerations let a pod stay: the shortest time that any of them names counts. all is false if there is a taint that none
// of them tolerates.
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

// since is when a pod began to tolerate its node's taints: when the last of them was added, or when it was bound to the node, if that was later. If
// that was just now, or nobody says when, it is now. Times in the API are full seconds; no pod is to go a second too early for that.
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

// marked says whether a pod's status tells already why it is deleted.
func marked(pod *corev1.Pod) bool {
	c := condition(pod, corev1.DisruptionTarget)
	return c != nil && c.Status == corev1.ConditionTrue && c.Reason == reason
}

// evict marks a pod as disrupted, so that whoever counts failures knows it was not the pod's fault, and deletes it.
func evict(pod *corev1.Pod, now time.Time) controller.Decision {
	var actions []controller.Action
	if !marked(pod) {
		actions = append(actions, controller.Patch(pod, "status", types.StrategicMergePatchType, mark(pod, now)))
	}
	actions = append(actions, controller.Delete(pod, metav1.DeleteOptions{}))
	return controller.Decision{Actions: actions, Then: func(err error) controller.Decision {
		if apierrors.IsNotFound(err) {
			return controller.Nothing // somebody was faster
		}
		if err != nil {
			return controller.Decision{Err: err}
		}
		return controller.Decision{Actions: []controller.Action{tell(controller.KeyOf(pod), pod.UID, "Marking for deletion Pod %s")}}
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
		panic(fmt.Sprintf("encoding a condition: %v", err))
	}
	return patch
}

func tell(key controller.Key, uid types.UID, format string) controller.Action {
	about := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: uid}}
	return controller.Event(about, corev1.EventTypeNormal, "TaintManagerEviction", format, key)
}
