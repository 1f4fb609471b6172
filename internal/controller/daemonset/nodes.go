package daemonset

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/client"
	"skiff/internal/controller"
	"skiff/internal/controller/owned"
)

// manage finds the nodes that need a pod, and the pods to delete: on nodes that they may not run on, terminal ones, and surplus ones.
func (s *state) manage() {
	for i := range s.targets {
		switch p := &s.targets[i]; {
		case !p.exists: // pods for a deleted node are never bound, and nothing else deletes them
			for _, pod := range p.pods {
				if pod.Spec.NodeName == "" {
					s.deletes = append(s.deletes, pod)
				}
			}
		case p.shouldRun && len(p.pods) == 0:
			s.creates = append(s.creates, p.name)
		case p.mayStay:
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

// checkAlive reports whether a pod runs or will run. A terminal pod is added to those to delete: another takes its place.
func (s *state) checkAlive(p *target, pod *corev1.Pod) bool {
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

// deleteFailed deletes a failed pod, unless the node is in back-off.
func (s *state) deleteFailed(node string, pod *corev1.Pod) {
	key := backoffKey(s.set, node)
	if s.failedPods.IsInBackOffSinceUpdate(key, s.now) {
		s.requeue(s.failedPods.Get(key))
		return
	}
	s.events = append(s.events,
		controller.Call("let the next pod that fails on "+node+" stay longer", func(context.Context, *client.Client) error {
			s.failedPods.Next(key, s.now)
			return nil
		}),
		controller.Event(s.set, corev1.EventTypeWarning, "FailedDaemonPod",
			"Found failed daemon pod %s/%s on node %s, will try to kill it", pod.Namespace, pod.Name, node))
	s.deletes = append(s.deletes, pod)
}

// keepOne keeps the oldest pod on a node and deletes others. With maxSurge two may stay, while the new one is not ready and the old one is.
func (s *state) keepOne(p *target) {
	surges, alive := s.surges(), 0
	var first, newer, older *corev1.Pod // the oldest of all, the oldest of the current template, the oldest of other templates
	for _, pod := range p.pods {
		if !s.checkAlive(p, pod) {
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
	case alive == 0 && p.shouldRun:
		s.creates = append(s.creates, p.name) // even beside pods that are being deleted
	case newer != nil && older != nil && (!owned.Ready(older) || s.available(newer)):
		s.deletes = append(s.deletes, older)
	}
}
