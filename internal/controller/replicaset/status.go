package replicaset

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"skiff/internal/controller"
	"skiff/internal/controller/owned"
)

// report updates the status if it changed, and requeues the set for when its next pod becomes available.
func (o *observed) report(mine []*corev1.Pod, terminating int, result *outcome, now time.Time) controller.Decision {
	status, requeueAfter := o.newStatus(mine, terminating, now)
	status.Conditions = conditions(o.status.Conditions, result, now)
	switch {
	case equality.Semantic.DeepEqual(status, o.status):
		return controller.Decision{RequeueAfter: requeueAfter}
	case o.wait > 0 && result == nil && o.unsettled(&status):
		if requeueAfter > 0 {
			return controller.Decision{RequeueAfter: min(requeueAfter, o.wait)}
		}
		return controller.Decision{RequeueAfter: o.wait}
	}
	return controller.Decision{Actions: []controller.Action{controller.UpdateStatus(o.withStatus(status))}, RequeueAfter: requeueAfter}
}

// unsettled reports whether only counts have changed and more such changes are to come soon.
func (o *observed) unsettled(status *appsv1.ReplicaSetStatus) bool {
	if status.ObservedGeneration != o.status.ObservedGeneration || !equality.Semantic.DeepEqual(status.Conditions, o.status.Conditions) {
		return false
	}
	return int(status.Replicas) != o.replicas || status.AvailableReplicas != status.Replicas || ptr.Deref(status.TerminatingReplicas, 0) > 0
}

// newStatus counts pods. requeueAfter is the time until the next ready pod has been ready for minReadySeconds.
func (o *observed) newStatus(mine []*corev1.Pod, terminating int, now time.Time) (status appsv1.ReplicaSetStatus, requeueAfter time.Duration) {
	status = appsv1.ReplicaSetStatus{Replicas: int32(len(mine)), ObservedGeneration: o.GetGeneration()}
	if o.countsTerminating {
		status.TerminatingReplicas = ptr.To(int32(terminating))
	}
	labeled := labels.SelectorFromValidatedSet(o.template.Labels)
	minReady := time.Duration(o.minReadySeconds) * time.Second
	for _, pod := range mine {
		if labeled.Matches(labels.Set(pod.Labels)) {
			status.FullyLabeledReplicas++
		}
		since, ready := owned.ReadySince(pod)
		if !ready {
			continue
		}
		status.ReadyReplicas++
		left := minReady - now.Sub(since.Time)
		if minReady > 0 && since.IsZero() {
			left = minReady // the condition has no transition time yet: check again later
		}
		switch {
		case minReady <= 0 || left <= 0:
			status.AvailableReplicas++
		case requeueAfter == 0 || left < requeueAfter:
			requeueAfter = left
		}
	}
	return status, requeueAfter
}

// conditions returns the old conditions, with ReplicaFailure added if creating or deleting pods failed, and removed if it succeeded.
func conditions(old []appsv1.ReplicaSetCondition, result *outcome, now time.Time) []appsv1.ReplicaSetCondition {
	isFailure := func(c appsv1.ReplicaSetCondition) bool { return c.Type == appsv1.ReplicaSetReplicaFailure }
	failing := slices.ContainsFunc(old, isFailure)
	switch failed := result != nil && result.failed != nil; {
	case failed && !failing:
		return append(slices.Clone(old), appsv1.ReplicaSetCondition{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(now), Reason: result.reason, Message: result.failed.Error()})
	case !failed && failing:
		return slices.DeleteFunc(slices.Clone(old), isFailure)
	}
	return old
}
