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

// report writes the status, if it is to be another, and sees to it that pods become available in time.
func (o *observed) report(mine []*corev1.Pod, terminating int, went *outcome, now time.Time) controller.Decision {
	status, again := o.newStatus(mine, terminating, now)
	status.Conditions = conditions(o.status.Conditions, went, now)
	switch {
	case equality.Semantic.DeepEqual(status, o.status):
		return controller.Decision{Again: again}
	case o.wait > 0 && went == nil && o.unsettled(&status):
		if again > 0 {
			return controller.Decision{Again: min(again, o.wait)}
		}
		return controller.Decision{Again: o.wait}
	}
	return controller.Decision{Actions: []controller.Action{controller.UpdateStatus(o.withStatus(status))}, Again: again}
}

// unsettled says that only numbers have changed, and more such changes are to come soon.
func (o *observed) unsettled(status *appsv1.ReplicaSetStatus) bool {
	if status.ObservedGeneration != o.status.ObservedGeneration || !equality.Semantic.DeepEqual(status.Conditions, o.status.Conditions) {
		return false
	}
	return int(status.Replicas) != o.replicas || status.AvailableReplicas != status.Replicas || ptr.Deref(status.TerminatingReplicas, 0) > 0
}

// newStatus counts. again is when the next pod will have been ready for long enough to count as available.
func (o *observed) newStatus(mine []*corev1.Pod, terminating int, now time.Time) (status appsv1.ReplicaSetStatus, again time.Duration) {
	status = appsv1.ReplicaSetStatus{Replicas: int32(len(mine)), ObservedGeneration: o.GetGeneration()}
	if o.countsTerminating {
		status.TerminatingReplicas = ptr.To(int32(terminating))
	}
	labeled := labels.SelectorFromValidatedSet(o.template.Labels)
	settle := time.Duration(o.minReadySeconds) * time.Second
	for _, pod := range mine {
		if labeled.Matches(labels.Set(pod.Labels)) {
			status.FullyLabeledReplicas++
		}
		since, ready := owned.ReadySince(pod)
		if !ready {
			continue
		}
		status.ReadyReplicas++
		left := settle - now.Sub(since.Time)
		if settle > 0 && since.IsZero() {
			left = settle // it does not say since when: look again, it may
		}
		switch {
		case settle <= 0 || left <= 0:
			status.AvailableReplicas++
		case again == 0 || left < again:
			again = left
		}
	}
	return status, again
}

// conditions are those there were, with ReplicaFailure added when pods could not be created or deleted and removed when they could.
func conditions(old []appsv1.ReplicaSetCondition, went *outcome, now time.Time) []appsv1.ReplicaSetCondition {
	isFailure := func(c appsv1.ReplicaSetCondition) bool { return c.Type == appsv1.ReplicaSetReplicaFailure }
	failing := slices.ContainsFunc(old, isFailure)
	switch failed := went != nil && went.failed != nil; {
	case failed && !failing:
		return append(slices.Clone(old), appsv1.ReplicaSetCondition{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(now), Reason: went.reason, Message: went.failed.Error()})
	case !failed && failing:
		return slices.DeleteFunc(slices.Clone(old), isFailure)
	}
	return old
}
