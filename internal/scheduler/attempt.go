package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/retry"

	"skiff/internal/client"
	"skiff/internal/journey"
	"skiff/internal/scheduling"
)

// scheduleOne tries to find a node for a pod. If there is one, the pod is bound to it in the background.
func (s *Scheduler) scheduleOne(p *queuedPod) {
	began := time.Now()
	profile := s.profiles[p.Spec.SchedulerName]
	if profile == nil || s.cluster.isAssumed(p.UID) {
		s.queue.done(p)
		return
	}
	if p.DeletionTimestamp != nil {
		s.recorder.event(p.Pod.Pod, nil, p.Spec.SchedulerName, corev1.EventTypeWarning, "FailedScheduling", "Scheduling",
			fmt.Sprintf("skip schedule deleting pod: %v/%v", p.Namespace, p.Name))
		s.queue.done(p)
		return
	}
	span := s.client.Begin(p.Pod.Pod, journey.Schedule)
	v := view{nominated: s.queue.nominated()}
	v.snapshot, v.order = s.cluster.snapshot()
	var out outcome
	err := s.guard(p.Pod, func() (err error) {
		out, err = s.cycle.decide(profile, p.Pod, v)
		return err
	})
	s.metrics.algorithm.Observe(time.Since(began).Seconds())
	s.observe(profile, &out, err)
	if err == nil && out.node != nil {
		recordVerdicts(span, p.attempts, out.node.Name, v.order, &out)
		span.End(nil)
		err = s.assume(p, out.node.Name, out.reservations, span)
	}
	switch {
	case err != nil:
		span.End(err)
		s.handleFailure(p, failure{err: err, nominated: &noNomination})
	case out.node == nil:
		f := failure{refusedBy: out.refusedBy, nominated: &noNomination}
		if profile.preempts {
			f.nominated = s.preempt(profile, p.Pod, v, &out)
		}
		for _, r := range out.releases {
			s.release(p.Pod, r)
			out.postFilter = strings.TrimSuffix(r.Message()+", "+out.postFilter, ", ")
		}
		f.err = errors.New(out.message())
		recordVerdicts(span, p.attempts, "", v.order, &out)
		span.End(f.err)
		s.handleFailure(p, f)
	}
}

// guard calls the plugins about a pod. A plugin that panics has failed for this pod; other pods must not wait for it.
func (s *Scheduler) guard(pod *scheduling.Pod, call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("panic while scheduling pod", "pod", key(pod), "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return call()
}

// observe records how long the plugins that were called took.
func (s *Scheduler) observe(profile *profile, out *outcome, err error) {
	name, t := profile.SchedulerName, &out.times
	status := func(last bool, refused scheduling.Code) scheduling.Code {
		switch {
		case !last:
			return scheduling.Success
		case err != nil:
			return scheduling.Error
		case out.node == nil:
			return refused
		}
		return scheduling.Success
	}
	if t.preFilter > 0 {
		s.metrics.point("PreFilter", name, status(t.filter == 0, scheduling.Unschedulable), t.preFilter)
	}
	if t.filter > 0 {
		s.metrics.point("Filter", name, status(t.score == 0, scheduling.Unschedulable), t.filter)
	}
	if t.score > 0 {
		s.metrics.point("Score", name, status(true, scheduling.Success), t.score)
	}
}

// noNomination clears a pod's nominated node.
var noNomination = ""

// preempt looks for pods to evict for a pod that fits on no node. It returns the node that the pod is nominated for, empty if none, nil if the
// nomination does not change.
func (s *Scheduler) preempt(profile *profile, pod *scheduling.Pod, v view, out *outcome) *string {
	var found preemptionResult
	began := time.Now()
	s.metrics.preemptions.Inc()
	err := s.guard(pod, func() error {
		latest, err := s.podLister.Pods(pod.Namespace).Get(pod.Name)
		if err != nil {
			return err
		}
		pod = reparsed(pod, latest)
		pdbs, err := s.pdbLister.List(labels.Everything())
		if err != nil {
			return err
		}
		trial, err := prepare(profile, pod, v, &diagnosis{})
		if err != nil {
			return err
		}
		if trial == nil { // refused whatever pods are evicted
			trial = &search{view: v, profile: profile, pod: pod}
		}
		p := preemption{args: profile.preemption, pdbs: pdbs, current: s.current, startAt: randomStart, now: time.Now()}
		found = p.find(trial, &out.diagnosis)
		return nil
	})
	if err != nil {
		s.metrics.point("PostFilter", profile.SchedulerName, scheduling.Error, time.Since(began))
		out.postFilter = "preemption: " + err.Error()
		return nil
	}
	result := scheduling.Unschedulable
	if found.candidate != nil {
		result = scheduling.Success
	}
	s.metrics.point("PostFilter", profile.SchedulerName, result, time.Since(began))
	out.postFilter = found.message
	switch {
	case found.candidate != nil:
		s.evict(pod, found.candidate)
		return &found.candidate.node.Name
	case found.clearNomination:
		return &noNomination
	}
	return nil
}

// assume puts the pod on its node before the API knows, and reserves what plugins need for it, so that the next cycle sees it there, and binds it in the
// background.
func (s *Scheduler) assume(p *queuedPod, node string, reservations []scheduling.Reservation, decided *client.Span) error {
	object := *p.Pod.Pod // a shallow copy: only the name of the node differs
	object.Spec.NodeName = node
	assumed := *p.Pod
	assumed.Pod = &object
	if err := s.cluster.assume(&assumed); err != nil {
		return err
	}
	list, err := s.reserve(&assumed, reservations)
	if err != nil {
		s.cluster.forget(p.UID)
		return err
	}
	s.queue.unnominate(p.UID)
	s.queue.done(p)
	span := decided.Begin(journey.Bind)
	if len(list) > 0 {
		s.preBindAsync(p, &assumed, list, span)
		return nil
	}
	s.bindAsync(func() { span.End(s.bind(span.In(s.ctx), p, &assumed, nil)) })
	return nil
}

// bindAsync runs a binding while the next pod is scheduled, in a goroutine that has just finished another or in a new one, of which there are at most
// maxBinding: a request needs a deep stack, and a stack that has grown for one need not grow for the next.
func (s *Scheduler) bindAsync(bind func()) {
	select {
	case s.bindings <- bind:
		return
	default:
	}
	select {
	case s.bindings <- bind:
	case s.binders <- struct{}{}:
		s.work.Go(func() {
			defer func() { <-s.binders }()
			idle := time.NewTimer(binderIdleTime)
			defer idle.Stop()
			for {
				bind()
				idle.Reset(binderIdleTime)
				select {
				case bind = <-s.bindings:
				case <-idle.C:
					return
				case <-s.ctx.Done():
					return
				}
			}
		})
	}
}

// bind binds a pod to its node through the API. If that fails, the pod is forgotten and requeued.
func (s *Scheduler) bind(ctx context.Context, p *queuedPod, assumed *scheduling.Pod, list []reserved) error {
	s.statuses.cancel(assumed.UID)
	began := time.Now()
	err := s.bindAPI(client.Because(ctx, assumed), assumed)
	result := scheduling.Success
	if err != nil {
		result = scheduling.Error
	}
	s.metrics.point("Bind", assumed.Spec.SchedulerName, result, time.Since(began))
	if err == nil {
		s.metrics.podScheduled(p)
		s.cluster.confirmBinding(assumed.UID)
		s.recorder.event(assumed.Pod, nil, assumed.Spec.SchedulerName, corev1.EventTypeNormal, "Scheduled", "Binding",
			fmt.Sprintf("Successfully assigned %v/%v to %v", assumed.Namespace, assumed.Name, assumed.Spec.NodeName))
		return nil
	}
	return s.bindingFailed(p, assumed, list, err)
}

// bindingFailed forgets a pod that could not be bound, with what is reserved for it, and requeues it. It returns the error.
func (s *Scheduler) bindingFailed(p *queuedPod, assumed *scheduling.Pod, list []reserved, err error) error {
	unreserve(list)
	if s.ctx.Err() != nil {
		return err
	}
	if _, ok := s.cluster.forget(assumed.UID); ok {
		s.queue.onEvent(scheduling.Event{Kind: scheduling.AssignedPod, Action: scheduling.Delete, OldPod: assumed}, nil)
	}
	s.handleFailure(p, failure{err: err, nominated: &noNomination})
	return err
}

func (s *Scheduler) bindAPI(ctx context.Context, pod *scheduling.Pod) error {
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: pod.Spec.NodeName},
	}
	return retry.OnError(retry.DefaultBackoff, retriable, func() error {
		return s.api.CoreV1().Pods(pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
	})
}

// failure is why a pod was not scheduled.
type failure struct {
	err       error
	refusedBy pluginSet
	nominated *string // the node it is nominated for; nil: as before
}

// handleFailure requeues a pod that could not be scheduled, and reports why in an Event and its status.
func (s *Scheduler) handleFailure(p *queuedPod, f failure) {
	reason, result := corev1.PodReasonSchedulerError, schedulingError
	if f.refusedBy != 0 || errors.Is(f.err, errNoNodes) {
		reason, result = corev1.PodReasonUnschedulable, notSchedulable
	} else {
		level := slog.LevelWarn
		if ignoreGone(f.err) == nil {
			level = slog.LevelDebug // it was deleted, or another scheduler was faster
		}
		s.log.Log(s.ctx, level, "failed to schedule pod", "pod", p.key(), "error", f.err)
	}
	s.metrics.attempt(result, p.Spec.SchedulerName, p.lastAttempt)
	latest, err := s.podLister.Pods(p.Namespace).Get(p.Name)
	if err != nil || latest.Spec.NodeName != "" || latest.UID != p.UID {
		s.queue.done(p) // deleted, bound all the same, or replaced by another pod of that name
		return
	}
	pod := reparsed(p.Pod, latest)
	nominated := pod.Status.NominatedNodeName
	if f.nominated != nil {
		nominated = *f.nominated
	}
	message := f.err.Error()
	s.recorder.event(latest, nil, latest.Spec.SchedulerName, corev1.EventTypeWarning, "FailedScheduling", "Scheduling", message)
	s.statuses.put(statusChange{latest, &corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: latest.Generation,
	}, f.nominated})
	s.queue.addUnschedulable(p, pod, f.refusedBy, nominated) // last: from now on it may be in flight again
}
