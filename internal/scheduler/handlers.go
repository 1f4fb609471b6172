package scheduler

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/scheduling"
)

// addEventHandlers connects the informers with the cluster and the queue.
func (s *Scheduler) addEventHandlers() error {
	core := s.others.Core().V1()
	namespace := func(obj any) {
		ns := obj.(*corev1.Namespace)
		s.cluster.putNamespace(ns.Name, labels.Set(ns.Labels))
	}
	for _, f := range []struct {
		informer cache.SharedIndexInformer
		handlers cache.ResourceEventHandlerFuncs
	}{
		{s.pods.Core().V1().Pods().Informer(), cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { s.podAdded(obj.(*corev1.Pod)) },
			UpdateFunc: func(old, obj any) { s.podChanged(old.(*corev1.Pod), obj.(*corev1.Pod)) },
			DeleteFunc: func(obj any) { lastState(obj, s.podDeleted) },
		}},
		{core.Nodes().Informer(), cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { s.nodeAdded(obj.(*corev1.Node)) },
			UpdateFunc: func(old, obj any) { s.nodeChanged(old.(*corev1.Node), obj.(*corev1.Node)) },
			DeleteFunc: func(obj any) { lastState(obj, s.nodeDeleted) },
		}},
		{core.Namespaces().Informer(), cache.ResourceEventHandlerFuncs{
			AddFunc:    namespace,
			UpdateFunc: func(_, obj any) { namespace(obj) },
			DeleteFunc: func(obj any) { lastState(obj, func(ns *corev1.Namespace) { s.cluster.removeNamespace(ns.Name) }) },
		}},
	} {
		registered, err := f.informer.AddEventHandler(f.handlers)
		if err != nil {
			return err
		}
		s.synced = append(s.synced, registered.HasSyncedChecker())
	}
	// These informers are only read.
	for _, informer := range []cache.SharedIndexInformer{s.others.Policy().V1().PodDisruptionBudgets().Informer(), core.Services().Informer(),
		core.ReplicationControllers().Informer(), s.others.Apps().V1().ReplicaSets().Informer(), s.others.Apps().V1().StatefulSets().Informer()} {
		s.synced = append(s.synced, informer.HasSyncedChecker())
	}
	if s.storage != nil {
		if err := s.addStorageHandlers(); err != nil {
			return err
		}
	}
	if s.devices != nil {
		return s.addDeviceHandlers()
	}
	return nil
}

// lastState calls a function with a deleted object, as it was last observed.
func lastState[T any](obj any, call func(T)) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	if deleted, ok := obj.(T); ok {
		call(deleted)
	}
}

func (s *Scheduler) responsible(pod *corev1.Pod) bool {
	return s.profiles[pod.Spec.SchedulerName] != nil
}

func (s *Scheduler) podAdded(pod *corev1.Pod) {
	switch {
	case pod.Spec.NodeName != "":
		s.placed(scheduling.NewPod(pod))
	case s.responsible(pod):
		s.queue.add(scheduling.NewPod(pod))
	}
}

func (s *Scheduler) podChanged(old, pod *corev1.Pod) {
	switch {
	case old.Spec.NodeName != "":
		s.placedChanged(old, pod)
	case pod.Spec.NodeName != "": // it was bound, mostly by this scheduler
		changed := reparsed(s.cluster.pod(pod.UID), pod)
		s.placed(changed)
		if s.responsible(old) {
			s.queue.remove(changed)
		}
	case s.responsible(old) && old.ResourceVersion != pod.ResourceVersion:
		s.waitingChanged(old, pod)
	}
}

func (s *Scheduler) podDeleted(pod *corev1.Pod) {
	s.waiters.wake(podWaiter(pod.UID))
	deleted := scheduling.NewPod(pod)
	if assumed, ok := s.cluster.forget(pod.UID); ok {
		// It was deleted while it was being bound, which is going to fail. Its resources are free now.
		deleted = assumed
		s.queue.onEvent(scheduling.Event{Kind: scheduling.AssignedPod, Action: scheduling.Delete, OldPod: assumed}, nil)
	} else if s.cluster.pod(pod.UID) != nil {
		s.cluster.removePod(pod.UID)
		s.queue.onEvent(scheduling.Event{Kind: scheduling.AssignedPod, Action: scheduling.Delete, OldPod: deleted}, nil)
	} else if pod.Status.NominatedNodeName != "" && s.responsible(pod) {
		s.nominationCleared(deleted)
	}
	if s.responsible(pod) {
		s.queue.remove(deleted)
	}
}

// placed adds a pod that is new on a node.
func (s *Scheduler) placed(pod *scheduling.Pod) {
	s.cluster.putPod(pod)
	s.queue.onEvent(scheduling.Event{Kind: scheduling.AssignedPod, Action: scheduling.Add, NewPod: pod}, nil)
}

func (s *Scheduler) placedChanged(before, pod *corev1.Pod) {
	changed := reparsed(s.cluster.pod(pod.UID), pod)
	old := s.cluster.putPod(changed)
	if old == nil {
		old = scheduling.NewPod(before)
	}
	if action := scheduling.PodUpdate(old, changed); action != scheduling.UpdateOther {
		s.queue.onEvent(scheduling.Event{Kind: scheduling.AssignedPod, Action: action, OldPod: old, NewPod: changed}, nil)
	}
}

// reparsed returns a pod in its new version. If nothing relevant to scheduling changed, the parsed form is kept: this is called for every status update
// of a pod. When in doubt the pod is parsed anew.
func reparsed(known *scheduling.Pod, pod *corev1.Pod) *scheduling.Pod {
	if known == nil || pod.Generation == 0 || known.Generation != pod.Generation || statusHasResources(known.Pod) || statusHasResources(pod) {
		return scheduling.NewPod(pod)
	}
	changed := *known
	changed.Pod = pod
	return &changed
}

// statusHasResources reports whether the status may say that the pod uses other resources than its spec asks for.
func statusHasResources(pod *corev1.Pod) bool {
	for i := range pod.Status.ContainerStatuses {
		if c := &pod.Status.ContainerStatuses[i]; c.Resources != nil || c.AllocatedResources != nil {
			return true
		}
	}
	for i := range pod.Status.InitContainerStatuses {
		if c := &pod.Status.InitContainerStatuses[i]; c.Resources != nil || c.AllocatedResources != nil {
			return true
		}
	}
	return pod.Status.Resources != nil || pod.Status.AllocatedResources != nil
}

func (s *Scheduler) waitingChanged(before, pod *corev1.Pod) {
	if s.cluster.isAssumed(pod.UID) {
		if before.DeletionTimestamp == nil && pod.DeletionTimestamp != nil {
			if assumed, ok := s.cluster.forget(pod.UID); ok {
				s.queue.onEvent(scheduling.Event{Kind: scheduling.AssignedPod, Action: scheduling.Delete, OldPod: assumed}, nil)
			}
		}
		return
	}
	s.queue.update(pod)
	if node := before.Status.NominatedNodeName; node != "" && node != pod.Status.NominatedNodeName {
		s.nominationCleared(scheduling.NewPod(before))
	}
}

// nominationCleared requeues pods that had to leave room on a node to a pod that no longer waits for it.
func (s *Scheduler) nominationCleared(by *scheduling.Pod) {
	s.queue.onEvent(scheduling.Event{Kind: scheduling.AssignedPod, Action: scheduling.Delete, OldPod: by},
		func(p *scheduling.Pod) bool { return p.Priority <= by.Priority })
}

func (s *Scheduler) nodeAdded(node *corev1.Node) {
	s.cluster.putNode(node)
	s.queue.onEvent(scheduling.Event{Kind: scheduling.NodeKind, Action: scheduling.Add, NewNode: node}, nil)
}

func (s *Scheduler) nodeChanged(old, node *corev1.Node) {
	s.cluster.putNode(node)
	if action := scheduling.NodeUpdate(old, node); action != 0 {
		s.waiters.wake(nodeWaiter(node.Name))
		s.queue.onEvent(scheduling.Event{Kind: scheduling.NodeKind, Action: action, OldNode: old, NewNode: node}, nil)
	}
}

func (s *Scheduler) nodeDeleted(node *corev1.Node) {
	s.queue.onEvent(scheduling.Event{Kind: scheduling.NodeKind, Action: scheduling.Delete, OldNode: node}, nil)
	s.cluster.removeNode(node.Name)
	s.waiters.wake(nodeWaiter(node.Name))
}

// isAlive reports whether a pod exists and is not terminating, as far as observed.
func (s *Scheduler) isAlive(pod *scheduling.Pod) bool {
	now, err := s.podLister.Pods(pod.Namespace).Get(pod.Name)
	return err == nil && now.UID == pod.UID && now.DeletionTimestamp == nil
}

// current returns a pod on a node with its current status.
func (s *Scheduler) current(pod *scheduling.Pod) *scheduling.Pod {
	if now := s.cluster.pod(pod.UID); now != nil {
		return now
	}
	return pod
}

// housekeep periodically expires cached results and checks assumed pods.
func (s *Scheduler) housekeep(ctx context.Context) {
	tick := time.NewTicker(confirmTimeout)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, pod := range s.cluster.unconfirmed(now.Add(-confirmTimeout)) {
				s.checkUnconfirmed(pod)
			}
			s.cycle.results.expire(now)
		}
	}
}

// checkUnconfirmed reads a pod whose binding the API accepted long ago. If it is not on that node, no event will tell: it is forgotten.
func (s *Scheduler) checkUnconfirmed(pod *scheduling.Pod) {
	now, err := s.podLister.Pods(pod.Namespace).Get(pod.Name)
	if err == nil && now.UID == pod.UID {
		return // the informer lags, but will observe it
	}
	if _, ok := s.cluster.forget(pod.UID); ok {
		s.log.Warn("forgot a bound pod that is not on its node", "pod", key(pod), "node", pod.Spec.NodeName)
		s.queue.onEvent(scheduling.Event{Kind: scheduling.AssignedPod, Action: scheduling.Delete, OldPod: pod}, nil)
	}
}
