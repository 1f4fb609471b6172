package daemonset

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// roll finds pods of old templates to replace, as many as the strategy allows. It requires that manage found nothing to do: manage creates pods
// where they were deleted, and handles terminal pods and nodes with too many.
func (s *state) roll() error {
	desired := 0
	for i := range s.targets {
		if s.targets[i].shouldRun {
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

// limits returns maxUnavailable and maxSurge in pods. At least one of them is more than zero.
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

// newAndOld returns a node's pod of the current template and its pod of an older one, without those that are being deleted. ok is false if there
// are several of either.
func (s *state) newAndOld(p *target) (newPod, oldPod *corev1.Pod, ok bool) {
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

// replace deletes old pods: those that are not available anyway, and of the others as many as maxUnavailable allows.
func (s *state) replace(maxUnavailable int) {
	unavailable := 0
	var candidates []*corev1.Pod
	for i := range s.targets {
		p := &s.targets[i]
		if !p.shouldRun && len(p.pods) == 0 {
			continue
		}
		newPod, oldPod, ok := s.newAndOld(p)
		switch {
		case !ok, (oldPod == nil) == (newPod == nil): // manage handles it
			unavailable++
		case newPod != nil:
			if !s.available(newPod) {
				unavailable++
			}
		case !s.available(oldPod):
			unavailable++
			s.deletes = append(s.deletes, oldPod)
		case unavailable < maxUnavailable:
			candidates = append(candidates, oldPod)
		}
	}
	s.deletes = append(s.deletes, candidates[:min(max(maxUnavailable-unavailable, 0), len(candidates))]...)
}

// surge creates new pods beside old ones: where the old one is not available anyway, and on as many other nodes as maxSurge allows. Old ones are
// deleted when the new ones are available.
func (s *state) surge(maxSurge, desired int) {
	surging, available := 0, 0
	var unwanted []*corev1.Pod // old pods on nodes that they should no longer run on
	var candidates []string
	for i := range s.targets {
		p := &s.targets[i]
		newPod, oldPod, ok := s.newAndOld(p)
		if !ok {
			surging++ // manage handles it
			continue
		}
		if oldPod != nil && s.available(oldPod) || oldPod == nil && newPod != nil && s.available(newPod) {
			available++
		}
		switch {
		case oldPod == nil: // manage handles it
		case newPod != nil:
			if s.available(newPod) {
				s.deletes = append(s.deletes, oldPod)
			} else {
				surging++
			}
		case !s.available(oldPod) && p.shouldRun:
			s.creates = append(s.creates, p.name)
		case !s.available(oldPod):
			s.deletes = append(s.deletes, oldPod)
		case !p.shouldRun:
			unwanted = append(unwanted, oldPod)
		case surging < maxSurge:
			candidates = append(candidates, p.name)
		}
	}
	s.creates = append(s.creates, candidates[:min(max(maxSurge-surging, 0), len(candidates))]...)
	// With maxSurge all pods are to stay available: where the set moves to other nodes, old pods are deleted only when enough others are available.
	s.deletes = append(s.deletes, unwanted[:min(max(available-desired, 0), len(unwanted))]...)
}
