package probe

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// maxAttempts is how often a probe that could not be run is tried before it counts as an error.
const maxAttempts = 3

// worker runs one probe of one container, from when it may be run until the container or the probe ends.
type worker struct {
	m     *Manager
	c     *container
	kind  Kind
	probe *corev1.Probe
}

func (w *worker) run(ctx context.Context) {
	if w.kind != Startup {
		select {
		case <-w.c.startedCh:
		case <-ctx.Done():
			return
		}
	}
	now := time.Now()
	s := newSchedule(w.kind, w.probe, w.c.startedAt, now, w.late(now))
	var count streak
	var asked, answered time.Time
	early := 0
	for {
		at, counts := s.next(asked, answered, early)
		if !counts {
			early++
		}
		if !sleep(ctx, time.Until(at)) {
			return
		}
		asked = time.Now()
		a := w.probeOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		answered = time.Now()
		good := a.err == nil && (a.outcome == success || a.outcome == warning)
		if good {
			s.stopEarly()
		}
		if !good && !counts {
			continue
		}
		w.record(a, answered.Sub(asked))
		if a.err != nil || !count.count(good, w.probe) {
			continue
		}
		w.setResult(good)
		// A container that has started is not probed for that again, and one that has failed is about to be killed.
		if w.kind == Startup || w.kind == Liveness && !good {
			return
		}
	}
}

// late returns when to begin with a container that started before the manager: at a random time within its period, so that not all are probed at once. It is
// zero for other containers.
func (w *worker) late(now time.Time) time.Time {
	if w.c.startedAfterManager {
		return time.Time{}
	}
	return now.Add(time.Duration(rand.Float64() * float64(seconds(w.probe.PeriodSeconds, defaultPeriod))))
}

func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// probeOnce runs the probe until there is a result, maxAttempts times at most.
func (w *worker) probeOnce(ctx context.Context) (a result) {
	w.m.mu.Lock()
	podIP := w.c.podIP
	w.m.mu.Unlock()
	p, timeout := w.probe, seconds(w.probe.TimeoutSeconds, defaultTimeout)
	for range maxAttempts {
		switch {
		case p.Exec != nil:
			a = probeExec(ctx, w.m.opts.Exec, p.Exec, w.c.spec, withoutScheme(w.c.id), timeout)
		case p.HTTPGet != nil:
			a = probeHTTP(ctx, p.HTTPGet, w.c.spec, podIP, timeout)
		case p.TCPSocket != nil:
			a = probeTCP(ctx, p.TCPSocket, w.c.spec, podIP, timeout)
		case p.GRPC != nil:
			a = probeGRPC(ctx, p.GRPC, podIP, timeout)
		default:
			return result{outcome: unknown, err: fmt.Errorf("missing probe handler for container %s", w.c.spec.Name)}
		}
		if a.err == nil || ctx.Err() != nil {
			return a
		}
	}
	return a
}

// record records the metrics and the Event of a result.
func (w *worker) record(a result, took time.Duration) {
	pod, followed := w.m.observe(w, a, took)
	if !followed {
		return
	}
	ref := containerRef(pod, w.c.spec.Name)
	switch {
	case a.err != nil:
		w.m.opts.Recorder.Eventf(ref, corev1.EventTypeWarning, "Unhealthy", "%s probe errored and resulted in %s state: %s", w.kind, a.outcome, a.err)
	case a.outcome == warning:
		w.m.opts.Recorder.Eventf(ref, corev1.EventTypeWarning, "ProbeWarning", "%s probe warning: %s", w.kind, a.output)
	case a.outcome == failure:
		w.m.opts.Recorder.Eventf(ref, corev1.EventTypeWarning, "Unhealthy", "%s probe failed: %s", w.kind, a.output)
	}
}

// observe records the metrics of a result, and returns the pod. followed is false if the container is not followed any more.
func (m *Manager) observe(w *worker, a result, took time.Duration) (pod *corev1.Pod, followed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pod = w.c.pod
	if m.pods[pod.UID][w.c.spec.Name] != w.c {
		return nil, false
	}
	if a.err == nil {
		m.metrics.observe(pod, w.c.spec.Name, w.kind, a.outcome != failure, took)
	}
	return pod, true
}

// containerRef returns the reference that Events about a container have.
func containerRef(pod *corev1.Pod, name string) *corev1.ObjectReference {
	list := "containers"
	if slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name }) {
		list = "initContainers"
	}
	return &corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		ResourceVersion: pod.ResourceVersion, FieldPath: fmt.Sprintf("spec.%s{%s}", list, name)}
}

func (w *worker) setResult(good bool) {
	w.m.mu.Lock()
	changed := w.c.setResult(w.kind, w.probe, good)
	update := Update{Pod: w.c.pod.UID, Container: w.c.spec.Name, ContainerID: w.c.id, Kind: w.kind, OK: good}
	w.m.mu.Unlock()
	if changed {
		w.m.opts.Report(update)
	}
}
