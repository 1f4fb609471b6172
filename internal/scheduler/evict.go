package scheduler

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/client"
	"skiff/internal/scheduling"
)

// maxEvicting is how many victims of one pod are evicted at a time.
const maxEvicting = 16

// evictions holds the evictions under way, by the pod that they make room for. It is also the gate that keeps such a pod out of the active queue until
// they are done.
type evictions struct {
	mu      sync.Mutex
	running map[types.UID]*eviction
	// isAlive reports whether a victim exists and is not terminating.
	isAlive func(*scheduling.Pod) bool
}

type eviction struct {
	last *scheduling.Pod // the only victim that is left; nil while there are others
}

// Name returns the name of the plugin.
func (e *evictions) Name() string { return defaultPreemption }

// EventsToRegister returns the deletions of other pods: a gate is asked again only for these events. Whether the pod may then be tried is decided by the plugins
// that refused it.
func (e *evictions) EventsToRegister() []scheduling.EventWithHint {
	return []scheduling.EventWithHint{{Kind: scheduling.AssignedPod, Actions: scheduling.Delete, Hint: func(*scheduling.Pod, scheduling.Event) bool { return false }}}
}

var evicting = &scheduling.Status{Code: scheduling.UnschedulableAndUnresolvable, Plugin: defaultPreemption,
	Reasons: []string{"waiting for the preemption for this pod to be finished"}}

// Admit keeps a pod back while its victims are being evicted. When the last one is terminating it may be tried: that may be observed before its eviction
// has returned.
func (e *evictions) PreEnqueue(pod *scheduling.Pod) *scheduling.Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r := e.running[pod.UID]; r == nil || r.last != nil && !e.isAlive(r.last) {
		return nil
	}
	return evicting
}

// evict evicts a candidate's victims, so that the pod fits on its node. It returns at once; the pod is kept back until that is done.
func (s *Scheduler) evict(pod *scheduling.Pod, c *candidate) {
	s.metrics.victims.Observe(float64(len(c.victims)))
	var victims []*scheduling.Pod
	for _, v := range c.victims {
		if v = s.current(v); v.DeletionTimestamp == nil { // otherwise it is terminating already
			victims = append(victims, v)
		}
	}
	if len(victims) == 0 {
		return
	}
	e := &eviction{}
	s.evictions.mu.Lock()
	s.evictions.running[pod.UID] = e
	s.evictions.mu.Unlock()
	s.work.Go(func() {
		ctx := client.Because(s.ctx, pod)
		err := s.evictAll(ctx, pod, c.node.Name, victims, e)
		s.evictions.mu.Lock()
		delete(s.evictions.running, pod.UID)
		s.evictions.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			s.log.Warn("failed to evict pods for a pod of higher priority", "pod", key(pod), "node", c.node.Name, "error", err)
			s.queue.activate(key(pod)) // no event will requeue it
		} else {
			s.queue.gateOpened(key(pod))
		}
	})
}

func (s *Scheduler) evictAll(ctx context.Context, pod *scheduling.Pod, node string, victims []*scheduling.Pod, e *eviction) error {
	failed := s.clearLowerNominations(ctx, pod, node)
	others, last := victims[:len(victims)-1], victims[len(victims)-1]
	errs := make(chan error, len(others))
	slots := make(chan struct{}, maxEvicting)
	for _, v := range others {
		slots <- struct{}{}
		go func() {
			errs <- s.evictOne(ctx, pod, node, v)
			<-slots
		}()
	}
	var first error
	for range others {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	if first != nil {
		return first // the pod is retried; evicting the last one too would be premature
	}
	s.evictions.mu.Lock()
	e.last = last
	s.evictions.mu.Unlock()
	if err := s.evictOne(ctx, pod, node, last); err != nil {
		return err
	}
	return failed
}

// evictOne adds the DisruptionTarget condition to a victim and deletes it.
func (s *Scheduler) evictOne(ctx context.Context, pod *scheduling.Pod, node string, victim *scheduling.Pod) error {
	condition := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler, ObservedGeneration: victim.Generation,
		Message: fmt.Sprintf("%s: preempting to accommodate a higher priority pod", pod.Spec.SchedulerName),
	}
	if err := s.patchStatus(ctx, victim.Pod, &condition, nil, false); err != nil {
		return ignoreGone(err)
	}
	uid := victim.UID
	err := s.api.CoreV1().Pods(victim.Namespace).Delete(ctx, victim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil {
		return ignoreGone(err)
	}
	s.recorder.event(victim.Pod, pod.Pod, pod.Spec.SchedulerName, corev1.EventTypeNormal, "Preempted", "Preempting",
		fmt.Sprintf("Preempted by pod %v on node %v", pod.UID, node))
	return nil
}

// ignoreGone drops the error that a pod was deleted, or replaced by another of its name.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// clearLowerNominations clears the nominations of pods of lower priority for a node: they may not fit any more.
func (s *Scheduler) clearLowerNominations(ctx context.Context, pod *scheduling.Pod, node string) (first error) {
	none := ""
	for _, other := range s.queue.nominated()[node] {
		if other.Priority < pod.Priority {
			if err := s.patchStatus(ctx, other.Pod, nil, &none, false); ignoreGone(err) != nil && first == nil {
				first = err
			}
		}
	}
	return first
}
