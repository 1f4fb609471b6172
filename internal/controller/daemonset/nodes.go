package daemonset

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"skiff/internal/client"
	"skiff/internal/controller"
)

// manage finds the nodes that need a pod, and the pods that must go: where the node is not for them, where they have ended, and where there are
// too many.
func (s *state) manage() {
	there := sets.New[string]()
	for _, node := range s.nodes {
		there.Insert(node.Name)
		pods, fit := s.byNode[node.Name], s.fits[node.Name]
		switch {
		case fit.wanted && len(pods) == 0:
			s.creates = append(s.creates, node.Name)
		case fit.stays:
			s.keepOne(node.Name, s.alive(node.Name, pods), fit.wanted)
		default:
			s.deletes = append(s.deletes, notDeleted(pods)...)
		}
	}
	// Pods that wait for a node that is gone are never bound, and nobody else deletes them.
	for node, pods := range s.byNode {
		if !there.Has(node) {
			s.deletes = append(s.deletes, slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" })...)
		}
	}
}

func notDeleted(pods []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
}

// alive returns the pods of a node that run or are to, and has those that have ended deleted: others take their places.
func (s *state) alive(node string, pods []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(notDeleted(pods), func(pod *corev1.Pod) bool {
		switch pod.Status.Phase {
		case corev1.PodFailed:
			s.deleteFailed(node, pod)
			return true
		case corev1.PodSucceeded:
			s.events = append(s.events, controller.Event(s.set, corev1.EventTypeNormal, "SucceededDaemonPod",
				"Found succeeded daemon pod %s/%s on node %s, will try to delete it", pod.Namespace, pod.Name, node))
			s.deletes = append(s.deletes, pod)
			return true
		}
		return false
	})
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
func (s *state) keepOne(node string, pods []*corev1.Pod, wanted bool) {
	if !s.surges() {
		s.deletes = append(s.deletes, pods[min(len(pods), 1):]...)
		return
	}
	if len(pods) == 0 && wanted {
		s.creates = append(s.creates, node) // even beside those that are being deleted
	}
	if len(pods) <= 1 {
		return
	}
	var newest, old *corev1.Pod // the oldest of each
	for _, pod := range pods {
		switch isNew := pod.Labels[appsv1.ControllerRevisionHashLabelKey] == s.hash; {
		case isNew && newest == nil:
			newest = pod
		case !isNew && old == nil:
			old = pod
		default:
			s.deletes = append(s.deletes, pod)
		}
	}
	if newest != nil && old != nil && (!ready(old) || s.available(newest)) {
		s.deletes = append(s.deletes, old)
	}
}
