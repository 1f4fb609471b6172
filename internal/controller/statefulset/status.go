package statefulset

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"skiff/internal/controller"
)

// report updates the status from the observed pods and deletes revisions beyond the history limit. err, if not nil, requeues the set with back-off.
func (s *state) report(err error) controller.Decision {
	status := s.status()
	if err == nil {
		status.CurrentReplicas -= s.replaced
	}
	s.complete(&status)
	var actions []controller.Action
	if status.ObservedGeneration >= s.set.Status.ObservedGeneration && !equality.Semantic.DeepEqual(s.set.Status, status) {
		next := s.set.DeepCopy()
		next.Status = status
		actions = append(actions, controller.UpdateStatus(next))
	}
	return controller.Decision{Actions: append(actions, s.truncate()...), RequeueAfter: s.requeueAfter, Err: err}
}

func (s *state) status() appsv1.StatefulSetStatus {
	status := appsv1.StatefulSetStatus{ObservedGeneration: s.set.Generation, CurrentRevision: s.current.Name, UpdateRevision: s.update.Name,
		CollisionCount: &s.collisionCount, Conditions: s.set.Status.Conditions, Replicas: int32(len(s.pods))}
	for _, pod := range s.pods {
		if runningAndReady(pod) {
			status.ReadyReplicas++
			available, left := s.available(pod)
			if available {
				status.AvailableReplicas++
			} else if s.requeueAfter == 0 || left < s.requeueAfter {
				s.requeueAfter = left
			}
		}
		if terminating(pod) {
			continue
		}
		if revisionOf(pod) == s.current.Name {
			status.CurrentReplicas++
		}
		if revisionOf(pod) == s.update.Name {
			status.UpdatedReplicas++
		}
	}
	return status
}

// complete makes the update revision the current one when all replicas are of it and ready.
func (s *state) complete(status *appsv1.StatefulSetStatus) {
	if want := ptr.Deref(s.set.Spec.Replicas, 1); status.UpdatedReplicas == want && status.ReadyReplicas == want && status.Replicas == want {
		status.CurrentReplicas, status.CurrentRevision = status.UpdatedReplicas, status.UpdateRevision
	}
}
