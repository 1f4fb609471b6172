package daemonset

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/client"
	"skiff/internal/controller"
	"skiff/internal/controller/owned"
)

// manage finds the nodes that need a pod, and the pods that must go: where the node is not for them, where they have ended, and where there are
// too many.
func (s *state) manage() {
	for i := range s.places {
		switch p := &s.places[i]; {
		case !p.there: // pods that wait for a node that is gone are never bound, and nobody else deletes them
			for _, pod := range p.pods {
				if pod.Spec.NodeName == "" {
					s.deletes = append(s.deletes, pod)
				}
			}
		case p.wanted && len(p.pods) == 0:
			s.creates = append(s.creates, p.name)
		case p.stays:
			s.keepOne(p)
		default:
			for _, pod := range p.pods {
				if pod.DeletionTimestamp == nil {
					s.deletes = append(s.deletes, pod)
				}
			}
		}
	}
}

// alive reports whether a pod runs or is to. One that has ended is deleted: another takes its place.
func (s *state) alive(p *place, pod *corev1.Pod) bool {
	switch {
	case pod.DeletionTimestamp != nil:
		return false
	case pod.Status.Phase == corev1.PodFailed:
		s.deleteFailed(p.name, pod)
		return false
	case pod.Status.Phase == corev1.PodSucceeded:
		s.events = append(s.events, controller.Event(s.set, corev1.EventTypeNormal, "SucceededDaemonPod",
			"Found succeeded daemon pod %s/%s on node %s, will try to delete it", pod.Namespace, pod.Name, p.name))
		s.deletes = append(s.deletes, pod)
		return false
	}
	return true
}

// deleteFailed deletes a pod that has failed, unless pods keep failing on that node.
func (s *state) deleteFailed(node string, pod *corev1.Pod) {
	key := failingKey(s.set, node)
	if s.failing.IsInBackOffSinceUpdate(key, s.now) {
		s.lookAgain(s.failing.Get(key))
		return
	}
	s.events = append(s.events,
		controller.Call("let the next pod that fails on "+node+" stay longer", func(context.Context, *client.Client) error {
			s.failing.Next(key, s.now)
			return nil
		}),
		controller.Event(s.set, corev1.EventTypeWarning, "FailedDaemonPod",
			"Found failed daemon pod %s/%s on node %s, will try to kill it", pod.Namespace, pod.Name, node))
	s.deletes = append(s.deletes, pod)
}

// keepOne leaves one pod on a node: the oldest. With surge it may be two, while the new one is not ready and the old one is.
func (s *state) keepOne(p *place) {
	surges, alive := s.surges(), 0
	var first, newer, older *corev1.Pod // the oldest of all, of the present template, of others
	for _, pod := range p.pods {
		if !s.alive(p, pod) {
			continue
		}
		alive++
		isNew := pod.Labels[hashLabel] == s.hash
		switch {
		case first == nil:
			first = pod
		case !surges, isNew && newer != nil, !isNew && older != nil:
			s.deletes = append(s.deletes, pod)
			continue
		}
		if isNew {
			newer = pod
		} else {
			older = pod
		}
	}
	switch {
	case !surges:
	case alive == 0 && p.wanted:
		s.creates = append(s.creates, p.name) // even beside those that are being deleted
	case newer != nil && older != nil && (!owned.Ready(older) || s.available(newer)):
		s.deletes = append(s.deletes, older)
	}
}
