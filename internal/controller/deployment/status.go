package deployment

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newStatus returns the Deployment's new status, and when to check its progress again.
func (p *plan) newStatus(rolling bool) (status appsv1.DeploymentStatus, requeueAfter time.Duration) {
	sets := p.all()
	available := sum(sets, (*set).available)
	status = appsv1.DeploymentStatus{
		ObservedGeneration: p.deployment.Generation,
		Replicas:           sum(sets, (*set).actual), ReadyReplicas: sum(sets, (*set).ready), AvailableReplicas: available,
		UnavailableReplicas: max(sum(sets, (*set).size)-available, 0), TerminatingReplicas: terminating(sets),
		CollisionCount: p.deployment.Status.CollisionCount, Conditions: slices.Clone(p.deployment.Status.Conditions),
	}
	if p.new != nil {
		status.UpdatedReplicas = p.new.actual()
	}
	if available >= p.replicas()-p.maxUnavailable() {
		p.set(&status, appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable", "Deployment has minimum availability.")
	} else {
		p.set(&status, appsv1.DeploymentAvailable, corev1.ConditionFalse, "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
	}
	if rolling {
		p.updateProgress(&status)
		p.updateReplicaFailure(&status)
		requeueAfter = p.untilDeadline(&status)
	}
	return status, requeueAfter
}

// terminating sums up the ReplicaSets' terminatingReplicas, or returns nil if one with an observed generation does not report them.
func terminating(sets []*set) *int32 {
	n := int32(0)
	for _, s := range sets {
		switch count := s.Status.TerminatingReplicas; {
		case count != nil:
			n += *count
		case s.Status.ObservedGeneration > 0:
			return nil
		}
	}
	return &n
}

// updateReplicaFailure copies the ReplicaFailure condition of a ReplicaSet, preferably of the new one.
func (p *plan) updateReplicaFailure(status *appsv1.DeploymentStatus) {
	sets := p.old
	if p.new != nil {
		sets = append([]*set{p.new}, sets...)
	}
	for _, s := range sets {
		for _, c := range s.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure {
				setCondition(status, appsv1.DeploymentCondition{Type: appsv1.DeploymentReplicaFailure, Status: c.Status, Reason: c.Reason, Message: c.Message,
					LastUpdateTime: c.LastTransitionTime, LastTransitionTime: c.LastTransitionTime})
				return
			}
		}
	}
	removeCondition(status, appsv1.DeploymentReplicaFailure)
}

// setEarly sets a condition of the Deployment before the rest of the status is known.
func (p *plan) setEarly(kind appsv1.DeploymentConditionType, is corev1.ConditionStatus, reason, format string, args ...any) {
	p.set(&p.deployment.Status, kind, is, reason, format, args...)
}

func (p *plan) set(status *appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType, is corev1.ConditionStatus, reason, format string, args ...any) {
	now := metav1.NewTime(p.now)
	setCondition(status, appsv1.DeploymentCondition{Type: kind, Status: is, Reason: reason, Message: fmt.Sprintf(format, args...),
		LastUpdateTime: now, LastTransitionTime: now})
}

func condition(status *appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range status.Conditions {
		if status.Conditions[i].Type == kind {
			return &status.Conditions[i]
		}
	}
	return nil
}

// setCondition sets a condition, unless it has the same status and reason already. lastTransitionTime stays if the status does.
func setCondition(status *appsv1.DeploymentStatus, c appsv1.DeploymentCondition) {
	if had := condition(status, c.Type); had != nil && had.Status == c.Status {
		if had.Reason == c.Reason {
			return
		}
		c.LastTransitionTime = had.LastTransitionTime
	}
	removeCondition(status, c.Type)
	status.Conditions = append(status.Conditions, c)
}

func removeCondition(status *appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType) {
	status.Conditions = slices.DeleteFunc(slices.Clone(status.Conditions), func(c appsv1.DeploymentCondition) bool { return c.Type == kind })
}
