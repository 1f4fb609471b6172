package statefulset

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"skiff/internal/controller"
	"skiff/internal/controller/owned"
)

// manageReplicas decides about the pods that there should be. Ordered, it reports that nothing else may be done yet when one of them is not as it
// should be.
func (s *state) manageReplicas() (blocked bool) {
	return s.forEach(s.replicas, s.manageReplica)
}

// manageCondemned decides about the pods that there should not be: ordered, the one with the highest ordinal is deleted once all others are
// available, but for one that is itself what is not.
func (s *state) manageCondemned() (blocked bool) {
	s.forEach(s.condemned, func(pod *corev1.Pod) ([]controller.Action, bool) { return s.ownClaims(pod, false), false })
	return s.forEach(s.condemned, func(pod *corev1.Pod) ([]controller.Action, bool) {
		available, _ := s.available(pod)
		switch {
		case terminating(pod), s.ordered && pod != s.firstUnavailable && !(runningAndReady(pod) && available):
			return nil, true
		}
		return []controller.Action{s.deletePod(pod)}, true
	})
}

// forEach adds the actions that one returns for each pod: ordered, up to the first pod that blocks; else for all pods, in batches.
func (s *state) forEach(pods []*corev1.Pod, one func(*corev1.Pod) (actions []controller.Action, blocks bool)) (blocked bool) {
	var batch []controller.Action
	for _, pod := range pods {
		actions, blocks := one(pod)
		if s.ordered {
			s.actions = append(s.actions, actions...)
			if blocks {
				return true
			}
		} else if len(actions) > 0 {
			batch = append(batch, controller.Sequence(nil, actions...))
		}
	}
	if len(batch) > 0 {
		s.actions = append(s.actions, controller.SlowStart(nil, batch...))
	}
	return false
}

// manageReplica decides about one pod that there should be, and reports whether the pods after it must wait for it.
func (s *state) manageReplica(pod *corev1.Pod) (actions []controller.Action, blocks bool) {
	switch {
	case owned.Terminal(pod):
		if !terminating(pod) {
			actions = append(actions, s.deletePod(pod)) // evicted pods and those of a node that restarted may have succeeded: they run again all the same
		}
		return actions, true
	case !exists(pod) && s.claimsAreStale(pod):
		return nil, true
	case !exists(pod):
		return append([]controller.Action{s.podAction("Create", pod, append(s.createClaims(pod), controller.Create(s.newPod(pod.Name)))...)}, s.ownClaims(pod, true)...), true
	}
	pending := pod.Status.Phase == corev1.PodPending
	if pending {
		actions = append(s.createClaims(pod), s.ownClaims(pod, true)...) // claims may have been deleted since the pod was created
	}
	if available, _ := s.available(pod); s.ordered && (terminating(pod) || !runningAndReady(pod) || !available) {
		return actions, true
	}
	return append(actions, s.mend(pod, !pending)...), false
}

// mend returns the actions that give a pod the labels and volumes that it should have and, if claims is set, its claims the owners. The API server
// refuses to change volumes: a pod that was adopted without them fails to be mended until it is deleted.
func (s *state) mend(pod *corev1.Pod, claims bool) (actions []controller.Action) {
	identified, hasVolumes := pod.Labels[appsv1.StatefulSetPodNameLabel] == pod.Name, s.hasVolumes(pod)
	if claims && !hasVolumes {
		actions = s.createClaims(pod)
	}
	if claims {
		actions = append(actions, s.ownClaims(pod, false)...)
	}
	if !identified || !hasVolumes {
		next := pod.DeepCopy()
		s.identify(next)
		next.Spec.Volumes = s.volumes(pod)
		actions = append(actions, controller.Update(next))
	}
	if len(actions) == 0 {
		return nil
	}
	return []controller.Action{s.podAction("Update", pod, actions...)}
}
