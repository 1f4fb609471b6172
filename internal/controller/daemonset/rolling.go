package daemonset

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// roll finds pods of an old template to replace, as many as the strategy allows. It relies on manage having nothing to do: that creates pods
// where they were deleted, and sees to pods that have ended and to nodes with too many.
func (s *state) roll() error {
	desired := 0
	for i := range s.places {
		if s.places[i].wanted {
			desired++
		}
	}
	unavailable, surge, err := s.limits(desired)
	if err != nil {
		return err
	}
	if surge == 0 {
		s.replace(unavailable)
	} else {
		s.surge(surge, desired)
	}
	return nil
}

// limits are how many pods may be unavailable, and how many nodes may have two. At least one is more than zero.
func (s *state) limits(desired int) (unavailable, surge int, err error) {
	r := s.set.Spec.UpdateStrategy.RollingUpdate
	if r == nil {
		return min(desired, 1), 0, nil
	}
	if r.MaxUnavailable != nil {
		if unavailable, err = intstr.GetScaledValueFromIntOrPercent(r.MaxUnavailable, desired, true); err != nil {
			return 0, 0, fmt.Errorf("invalid value for MaxUnavailable: %w", err)
		}
	}
	if r.MaxSurge != nil {
		if surge, err = intstr.GetScaledValueFromIntOrPercent(r.MaxSurge, desired, true); err != nil {
			return 0, 0, fmt.Errorf("invalid value for MaxSurge: %w", err)
		}
	}
	if desired > 0 && unavailable == 0 && surge == 0 {
		unavailable = 1
	}
	return unavailable, surge, nil
}

// surges reports whether the DaemonSet may have two pods on a node.
func (s *state) surges() bool {
	if s.set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType {
		return false
	}
	r := s.set.Spec.UpdateStrategy.RollingUpdate
	if r == nil || r.MaxSurge == nil {
		return false
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(r.MaxSurge, 1, true)
	return err == nil && n > 0
}

// newAndOld are the pods of a node that are not being deleted, of the present template and of an older one. It is not clear if there are
// several of either.
func (s *state) newAndOld(p *place) (newPod, oldPod *corev1.Pod, clear bool) {
	for _, pod := range p.pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		which := &oldPod
		if s.updated(pod) {
			which = &newPod
		}
		if *which != nil {
			return nil, nil, false
		}
		*which = pod
	}
	return newPod, oldPod, true
}

// replace deletes old pods: those that are not available anyway, and of the others as many as may be unavailable.
func (s *state) replace(most int) {
	unavailable := 0
	var candidates []*corev1.Pod
	for i := range s.places {
		p := &s.places[i]
		if !p.wanted && len(p.pods) == 0 {
			continue
		}
		newPod, oldPod, clear := s.newAndOld(p)
		switch {
		case !clear, (oldPod == nil) == (newPod == nil): // manage sees to it
			unavailable++
		case newPod != nil:
			if !s.available(newPod) {
				unavailable++
			}
		case !s.available(oldPod):
			unavailable++
			s.deletes = append(s.deletes, oldPod)
		case unavailable < most:
			candidates = append(candidates, oldPod)
		}
	}
	s.deletes = append(s.deletes, candidates[:min(max(most-unavailable, 0), len(candidates))]...)
}

// surge creates new pods beside old ones: where the old one is not available anyway, and as many others as nodes may have two. Old ones go when
// the new ones are available.
func (s *state) surge(most, desired int) {
	surging, available := 0, 0
	var unwanted []*corev1.Pod // old pods on nodes that are no longer for them
	var candidates []string
	for i := range s.places {
		p := &s.places[i]
		newPod, oldPod, clear := s.newAndOld(p)
		if !clear {
			surging++ // manage sees to it
			continue
		}
		if oldPod != nil && s.available(oldPod) || oldPod == nil && newPod != nil && s.available(newPod) {
			available++
		}
		switch {
		case oldPod == nil: // manage sees to it
		case newPod != nil:
			if s.available(newPod) {
				s.deletes = append(s.deletes, oldPod)
			} else {
				surging++
			}
		case !s.available(oldPod) && p.wanted:
			s.creates = append(s.creates, p.name)
		case !s.available(oldPod):
			s.deletes = append(s.deletes, oldPod)
		case !p.wanted:
			unwanted = append(unwanted, oldPod)
		case surging < most:
			candidates = append(candidates, p.name)
		}
	}
	s.creates = append(s.creates, candidates[:min(max(most-surging, 0), len(candidates))]...)
	// Who surges wants all pods available: where the set moves to other nodes, pods go only when there are enough elsewhere.
	s.deletes = append(s.deletes, unwanted[:min(max(available-desired, 0), len(unwanted))]...)
}
