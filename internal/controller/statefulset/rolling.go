package statefulset

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"skiff/internal/controller"
)

// partition returns the number of replicas that keep the current revision.
func (s *state) partition() int32 {
	if r := s.set.Spec.UpdateStrategy.RollingUpdate; r != nil && r.Partition != nil {
		return *r.Partition
	}
	return 0
}

// maxUnavailable returns how many replicas may be unavailable during an update: at least one, percentages rounded down.
func (s *state) maxUnavailable() (int, error) {
	r := s.set.Spec.UpdateStrategy.RollingUpdate
	if r == nil || r.MaxUnavailable == nil {
		return 1, nil
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(r.MaxUnavailable, len(s.replicas), false)
	return max(n, 1), err
}

// roll deletes pods that are not of the update revision, from the highest ordinal down to the partition. They are created again from the update
// revision when they are gone.
func (s *state) roll() error {
	limit, err := s.maxUnavailable()
	if err != nil {
		return err
	}
	unavailable := 0
	for _, pod := range s.replicas {
		if s.unavailable(pod) {
			unavailable++
		}
	}
	var idle, candidates []*corev1.Pod // old pods that are unavailable, and those that are available
	for i, pod := range slices.Backward(s.replicas) {
		if i < int(s.partition()) || !exists(pod) || terminating(pod) || revisionOf(pod) == s.update.Name {
			continue
		}
		if s.unavailable(pod) {
			idle = append(idle, pod)
		} else {
			candidates = append(candidates, pod)
		}
	}
	// Old pods that are unavailable anyway go first and do not count: deleting them makes nothing worse.
	s.replace(append(idle, candidates[:min(max(limit-unavailable, 0), len(candidates))]...))
	return nil
}

// replace deletes pods of an old revision.
func (s *state) replace(pods []*corev1.Pod) {
	var actions []controller.Action
	for _, pod := range pods {
		actions = append(actions, s.deletePod(pod))
		if revisionOf(pod) == s.current.Name {
			s.replaced++
		}
	}
	if s.ordered {
		s.actions = append(s.actions, actions...)
	} else if len(actions) > 0 {
		s.actions = append(s.actions, controller.SlowStart(nil, actions...))
	}
}
