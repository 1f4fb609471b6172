package scheduler

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/scheduling"
)

// follow has the informers tell the cluster and the queue what changes.
func (s *Scheduler) follow() error {
	core := s.others.Core().V1()
	namespace := func(obj any) {
		ns := obj.(*corev1.Namespace)
		s.cluster.putNamespace(ns.Name, labels.Set(ns.Labels))
	}
	for _, f := range []struct {
		informer cache.SharedIndexInformer
		tell     cache.ResourceEventHandlerFuncs
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
		registered, err := f.informer.AddEventHandler(f.tell)
		if err != nil {
			return err
		}
		s.synced = append(s.synced, registered.HasSyncedChecker())
	}
	// What is only looked up.
	for _, informer := range []cache.SharedIndexInformer{s.others.Policy().V1().PodDisruptionBudgets().Informer(), core.Services().Informer(),
		core.ReplicationControllers().Informer(), s.others.Apps().V1().ReplicaSets().Informer(), s.others.Apps().V1().StatefulSets().Informer()} {
		s.synced = append(s.synced, informer.HasSyncedChecker())
	}
	return nil
}

// lastState calls with an object that is gone, as it was last seen.
func lastState[T any](obj any, call func(T)) {
	if lost, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = lost.Obj
	}
	if gone, ok := obj.(T); ok {
		call(gone)
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
	case pod.Spec.NodeName != "": // it was bound, mostly by us
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
	gone := scheduling.NewPod(pod)
	if assumed, ok := s.cluster.forget(pod.UID); ok {
		// It went while it was being bound, which is going to fail. What it took is free now.
		gone = assumed
		s.queue.happened(scheduling.Event{Kind: scheduling.AssignedPod, Action: scheduling.Delete, OldPod: assumed}, nil)
	} else if s.cluster.pod(pod.UID) != nil {
		s.cluster.removePod(pod.UID)
		s.queue.happened(scheduling.Event{Kind: scheduling.AssignedPod, Action: scheduling.Delete, OldPod: gone}, nil)
	} else if pod.Status.NominatedNodeName != "" && s.responsible(pod) {
		s.roomGivenUp(gone)
	}
	if s.responsible(pod) {
		s.queue.remove(gone)
	}
}

// placed takes in a pod that is new on a node.
func (s *Scheduler) placed(pod *scheduling.Pod) {
	s.cluster.putPod(pod)
	s.queue.happened(scheduling.Event{Kind: scheduling.AssignedPod, Action: scheduling.Add, NewPod: pod}, nil)
}

func (s *Scheduler) placedChanged(before, pod *corev1.Pod) {
	changed := reparsed(s.cluster.pod(pod.UID), pod)
	old := s.cluster.putPod(changed)
	if old == nil {
		old = scheduling.NewPod(before)
	}
	if action := scheduling.PodUpdate(old, changed); action != scheduling.UpdateOther {
		s.queue.happened(scheduling.Event{Kind: scheduling.AssignedPod, Action: action, OldPod: old, NewPod: changed}, nil)
	}
}

// reparsed is a pod in its new form. If nothing changed that matters to scheduling, what was known of it is kept: this is done for every step
// in a pod's life. In doubt it is parsed anew.
func reparsed(known *scheduling.Pod, pod *corev1.Pod) *scheduling.Pod {
	if known == nil || pod.Generation == 0 || known.Generation != pod.Generation || saysResources(known.Pod) || saysResources(pod) {
		return scheduling.NewPod(pod)
	}
	changed := *known
	changed.Pod = pod
	return &changed
}

// saysResources reports whether the status may say that the pod takes something else than its spec asks for.
func saysResources(pod *corev1.Pod) bool {
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
				s.queue.happened(scheduling.Event{Kind: scheduling.AssignedPod, Action: scheduling.Delete, OldPod: assumed}, nil)
			}
		}
		return
	}
	s.queue.update(pod)
	if node := before.Status.NominatedNodeName; node != "" && node != pod.Status.NominatedNodeName {
		s.roomGivenUp(scheduling.NewPod(before))
	}
}

// roomGivenUp has pods tried again that had to leave room on a node to one that is not waiting for it any more.
func (s *Scheduler) roomGivenUp(by *scheduling.Pod) {
	s.queue.happened(scheduling.Event{Kind: scheduling.AssignedPod, Action: scheduling.Delete, OldPod: by},
		func(p *scheduling.Pod) bool { return p.Priority <= by.Priority })
}

func (s *Scheduler) nodeAdded(node *corev1.Node) {
	s.cluster.putNode(node)
	s.queue.happened(scheduling.Event{Kind: scheduling.NodeKind, Action: scheduling.Add, NewNode: node}, nil)
}

func (s *Scheduler) nodeChanged(old, node *corev1.Node) {
	s.cluster.putNode(node)
	if action := scheduling.NodeUpdate(old, node); action != 0 {
		s.queue.happened(scheduling.Event{Kind: scheduling.NodeKind, Action: action, OldNode: old, NewNode: node}, nil)
	}
}

func (s *Scheduler) nodeDeleted(node *corev1.Node) {
	s.queue.happened(scheduling.Event{Kind: scheduling.NodeKind, Action: scheduling.Delete, OldNode: node}, nil)
	s.cluster.removeNode(node.Name)
}

// living reports whether a pod is there and not ending, as far as the informer knows.
func (s *Scheduler) living(pod *scheduling.Pod) bool {
	now, err := s.podLister.Pods(pod.Namespace).Get(pod.Name)
	return err == nil && now.UID == pod.UID && now.DeletionTimestamp == nil
}

// fresh is a pod on a node with the status it has now.
func (s *Scheduler) fresh(pod *scheduling.Pod) *scheduling.Pod {
	if now := s.cluster.pod(pod.UID); now != nil {
		return now
	}
	return pod
}

// tidy looks, now and then, for what time alone brings about.
func (s *Scheduler) tidy(ctx context.Context) {
	tick := time.NewTicker(confirmPatience)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, pod := range s.cluster.overdue(now.Add(-confirmPatience)) {
				s.confirm(pod)
			}
			s.cycle.memory.fade(now)
		}
	}
}

// confirm looks for a pod whose binding the API took long ago. If it is not on that node, nothing will ever say so: what it takes is let go.
func (s *Scheduler) confirm(pod *scheduling.Pod) {
	now, err := s.podLister.Pods(pod.Namespace).Get(pod.Name)
	if err == nil && now.UID == pod.UID {
		return // the informer lags, but will show it
	}
	if _, ok := s.cluster.forget(pod.UID); ok {
		s.log.Warn("a bound pod never showed up", "pod", key(pod), "node", pod.Spec.NodeName)
		s.queue.happened(scheduling.Event{Kind: scheduling.AssignedPod, Action: scheduling.Delete, OldPod: pod}, nil)
	}
}
