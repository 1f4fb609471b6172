package deployment

import (
	"math"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of the Progressing condition that decisions depend on.
const (
	rolledOut = "NewReplicaSetAvailable"
	timedOut  = "ProgressDeadlineExceeded"
	paused    = "DeploymentPaused"
)

// hasDeadline reports whether the Deployment has a progressDeadlineSeconds.
func (p *plan) hasDeadline() bool {
	deadline := p.deployment.Spec.ProgressDeadlineSeconds
	return deadline != nil && *deadline != math.MaxInt32
}

// progress returns the Deployment's Progressing condition, or nil.
func (p *plan) progress() *appsv1.DeploymentCondition {
	return condition(&p.deployment.Status, appsv1.DeploymentProgressing)
}

// notePaused records in the Progressing condition that a Deployment was paused or resumed, so that the time in between does not count against
// its deadline.
func (p *plan) notePaused() {
	if !p.hasDeadline() {
		return
	}
	was := p.progress()
	if was != nil && was.Reason == timedOut {
		return
	}
	wasPaused := was != nil && was.Reason == paused
	switch is := p.deployment.Spec.Paused; {
	case is && !wasPaused:
		p.setEarly(appsv1.DeploymentProgressing, corev1.ConditionUnknown, paused, "Deployment is paused")
	case !is && wasPaused:
		p.setEarly(appsv1.DeploymentProgressing, corev1.ConditionUnknown, "DeploymentResumed", "Deployment is resumed")
	}
}

// isComplete reports whether a status says that all replicas are of the new template and available.
func (p *plan) isComplete(status *appsv1.DeploymentStatus) bool {
	n := p.replicas()
	return status.UpdatedReplicas == n && status.Replicas == n && status.AvailableReplicas == n && status.ObservedGeneration >= p.deployment.Generation
}

// isProgressing reports whether a status shows progress over the observed one.
func (p *plan) isProgressing(status *appsv1.DeploymentStatus) bool {
	was := &p.seen.Status
	return status.UpdatedReplicas > was.UpdatedReplicas || status.Replicas-status.UpdatedReplicas < was.Replicas-was.UpdatedReplicas ||
		status.ReadyReplicas > was.ReadyReplicas || status.AvailableReplicas > was.AvailableReplicas
}

// updateProgress sets the Progressing condition.
func (p *plan) updateProgress(status *appsv1.DeploymentStatus) {
	if !p.hasDeadline() {
		removeCondition(status, appsv1.DeploymentProgressing)
		return
	}
	was := p.progress()
	if was != nil && was.Reason == rolledOut && status.Replicas == status.UpdatedReplicas {
		return // no rollout is under way
	}
	what, name := "Deployment", p.deployment.Name
	if p.new != nil {
		what, name = "ReplicaSet", p.new.Name
	}
	switch {
	case p.isComplete(status):
		p.set(status, appsv1.DeploymentProgressing, corev1.ConditionTrue, rolledOut, "%s %q has successfully progressed.", what, name)
	case p.isProgressing(status):
		// Every progress updates lastUpdateTime, even if nothing else of the condition changes.
		removeCondition(status, appsv1.DeploymentProgressing)
		p.set(status, appsv1.DeploymentProgressing, corev1.ConditionTrue, "ReplicaSetUpdated", "%s %q is progressing.", what, name)
		if was != nil && was.Status == corev1.ConditionTrue {
			condition(status, appsv1.DeploymentProgressing).LastTransitionTime = was.LastTransitionTime
		}
	case was != nil && was.Reason != rolledOut && p.deadline(was.LastUpdateTime).Before(p.now):
		p.set(status, appsv1.DeploymentProgressing, corev1.ConditionFalse, timedOut, "%s %q has timed out progressing.", what, name)
	}
}

func (p *plan) deadline(from metav1.Time) time.Time {
	return from.Add(time.Duration(*p.deployment.Spec.ProgressDeadlineSeconds) * time.Second)
}

// deadlineSlack is how long after the deadline the Deployment is requeued to check it.
const deadlineSlack = 10 * time.Millisecond

// untilDeadline returns the time until a Deployment that does not progress will have timed out, or 0.
func (p *plan) untilDeadline(status *appsv1.DeploymentStatus) time.Duration {
	c := condition(status, appsv1.DeploymentProgressing)
	if !p.hasDeadline() || c == nil || p.isComplete(status) || c.Reason == timedOut || c.Reason == rolledOut {
		return 0
	}
	return max(p.deadline(c.LastUpdateTime).Sub(p.now), 0) + deadlineSlack
}
