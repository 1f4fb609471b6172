package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/retry"

	"skiff/internal/client"
	"skiff/internal/journey"
	"skiff/internal/scheduling"
)

// scheduleOne tries to find a node for a pod. If there is one, the pod is bound to it behind the scheduler's back.
func (s *Scheduler) scheduleOne(p *queuedPod) {
	began := time.Now()
	profile := s.profiles[p.Spec.SchedulerName]
	if profile == nil || s.cluster.isAssumed(p.UID) {
		s.queue.landed(p)
		return
	}
	if p.DeletionTimestamp != nil {
		s.recorder.event(p.Pod.Pod, nil, p.Spec.SchedulerName, corev1.EventTypeWarning, "FailedScheduling", "Scheduling",
			fmt.Sprintf("skip schedule deleting pod: %v/%v", p.Namespace, p.Name))
		s.queue.landed(p)
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
		tell(span, p.attempts, out.node.Name, v.order, &out)
		span.End(nil)
		err = s.assume(p, out.node.Name, span)
	}
	switch {
	case err != nil:
		span.End(err)
		s.failed(p, failure{err: err, nominated: &nobody})
	case out.node == nil:
		f := failure{refusedBy: out.refusedBy, nominated: &nobody}
		if profile.preempts {
			f.nominated = s.preempt(profile, p.Pod, v, &out)
		}
		f.err = errors.New(out.message())
		tell(span, p.attempts, "", v.order, &out)
		span.End(f.err)
		s.failed(p, f)
	}
}

// guard calls the plugins about a pod. One that panics has failed for this pod; the others shall not wait for it.
func (s *Scheduler) guard(pod *scheduling.Pod, call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("scheduling a pod panicked", "pod", key(pod), "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return call()
}

// observe says how long the plugins took that were asked.
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

// nobody is a nomination taken back.
var nobody = ""

// preempt looks for pods to evict for one that no node takes. It returns the node that the pod is to wait for, empty if there is none, nil if
// that is as it was.
func (s *Scheduler) preempt(profile *profile, pod *scheduling.Pod, v view, out *outcome) *string {
	var found preempted
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
		if trial == nil { // refused whatever pods there are
			trial = &search{view: v, profile: profile, pod: pod}
		}
		p := preemption{args: profile.preemption, pdbs: pdbs, fresh: s.fresh, from: anywhere, now: time.Now()}
		found = p.find(trial, &out.diagnosis)
		return nil
	})
	if err != nil {
		s.metrics.point("PostFilter", profile.SchedulerName, scheduling.Error, time.Since(began))
		out.after = "preemption: " + err.Error()
		return nil
	}
	result := scheduling.Unschedulable
	if found.candidate != nil {
		result = scheduling.Success
	}
	s.metrics.point("PostFilter", profile.SchedulerName, result, time.Since(began))
	out.after = found.message
	switch {
	case found.candidate != nil:
		s.evict(pod, found.candidate)
		return &found.candidate.node.Name
	case found.clear:
		return &nobody
	}
	return nil
}

// assume puts the pod on its node before the API knows, so that the next one sees it there, and has it bound.
func (s *Scheduler) assume(p *queuedPod, node string, decided *client.Span) error {
	object := *p.Pod.Pod // a flat copy: only the name of the node differs
	object.Spec.NodeName = node
	assumed := *p.Pod
	assumed.Pod = &object
	if err := s.cluster.assume(&assumed); err != nil {
		return err
	}
	s.queue.unnominate(p.UID)
	s.queue.landed(p)
	span := decided.Begin(journey.Bind)
	s.beside(func() { span.End(s.bind(span.In(s.ctx), p, &assumed)) })
	return nil
}

// beside has a binding made while the next pod is looked at, by a goroutine that has just made another or by a new one, of which there are only so many:
// a request goes deep, and a stack that has grown for one need not grow for the next.
func (s *Scheduler) beside(bind func()) {
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
			idle := time.NewTimer(binderStays)
			defer idle.Stop()
			for {
				bind()
				idle.Reset(binderStays)
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

// bind tells the API which node a pod is on. If that fails, the pod is taken off and tried again later.
func (s *Scheduler) bind(ctx context.Context, p *queuedPod, assumed *scheduling.Pod) error {
	s.statuses.settle(assumed.UID)
	began := time.Now()
	err := s.bindAPI(client.Because(ctx, assumed), assumed)
	result := scheduling.Success
	if err != nil {
		result = scheduling.Error
	}
	s.metrics.point("Bind", assumed.Spec.SchedulerName, result, time.Since(began))
	if err == nil {
		s.metrics.placed(p)
		s.cluster.confirmBinding(assumed.UID)
		s.recorder.event(assumed.Pod, nil, assumed.Spec.SchedulerName, corev1.EventTypeNormal, "Scheduled", "Binding",
			fmt.Sprintf("Successfully assigned %v/%v to %v", assumed.Namespace, assumed.Name, assumed.Spec.NodeName))
		return nil
	}
	if s.ctx.Err() != nil {
		return err
	}
	if _, ok := s.cluster.forget(assumed.UID); ok {
		s.queue.happened(scheduling.Event{Kind: scheduling.AssignedPod, Action: scheduling.Delete, OldPod: assumed}, nil)
	}
	s.failed(p, failure{err: err, nominated: &nobody})
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

// failure is why a pod is not on a node.
type failure struct {
	err       error
	refusedBy pluginSet
	nominated *string // the node it waits for room on; nil: as before
}

// failed puts a pod back that could not be scheduled, and says so.
func (s *Scheduler) failed(p *queuedPod, f failure) {
	reason, result := corev1.PodReasonSchedulerError, schedulingError
	if f.refusedBy != 0 || errors.Is(f.err, errNoNodes) {
		reason, result = corev1.PodReasonUnschedulable, notSchedulable
	} else {
		level := slog.LevelWarn
		if ignoreGone(f.err) == nil {
			level = slog.LevelDebug // it is gone, or somebody else was faster
		}
		s.log.Log(s.ctx, level, "a pod could not be scheduled", "pod", p.key(), "error", f.err)
	}
	s.metrics.attempt(result, p.Spec.SchedulerName, p.tried)
	latest, err := s.podLister.Pods(p.Namespace).Get(p.Name)
	if err != nil || latest.Spec.NodeName != "" || latest.UID != p.UID {
		s.queue.landed(p) // gone, on a node all the same, or another one of that name
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
	s.queue.putBack(p, pod, f.refusedBy, nominated) // last: from now on it may be on its way to a node again
}
