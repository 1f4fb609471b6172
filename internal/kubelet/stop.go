package kubelet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/status"
)

// leastGrace is how long a container may take to end in any case: to kill one that is just about to end helps nobody.
const leastGrace = 2 * time.Second

// stop is a stop of a container that was begun. It may take several tries: none starts the grace period again, or runs the hook again.
type stop struct {
	deadline time.Time
	hooked   bool
}

// graceOf is how long the containers of a pod may take to end.
func (w *worker) graceOf(pod *corev1.Pod) time.Duration {
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		return seconds(*pod.DeletionGracePeriodSeconds)
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return seconds(*pod.Spec.TerminationGracePeriodSeconds)
	}
	return leastGrace
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

// stopPod stops all containers of a pod, and its sandboxes.
func (w *worker) stopPod(ctx context.Context, pod *corev1.Pod, runtime *cri.Pod, grace time.Duration) error {
	running := runtime.Running()
	turns, ips := newTurns(pod, running), w.k.podIPs(runtime)
	errs := make([]error, len(running))
	var wg sync.WaitGroup
	for i, r := range running {
		of, c := pod, spec(pod, r.Name)
		if c == nil { // the pod does not have it any more, or nothing is known of the pod
			of, c = r.Restored(w.uid)
		}
		wg.Go(func() {
			if errs[i] = w.killContainer(ctx, of, c, r.ID, ips, "", grace, turns); errs[i] == nil {
				turns.ended(r.Name)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, s := range runtime.Sandboxes {
		if err := w.k.options.Runtime.StopPodSandbox(ctx, s.Id); err != nil && !cri.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// spec finds a container of any kind.
func spec(pod *corev1.Pod, name string) *corev1.Container {
	if c := container(pod.Spec.Containers, name); c != nil {
		return c
	}
	if c := container(pod.Spec.InitContainers, name); c != nil {
		return c
	}
	for i := range pod.Spec.EphemeralContainers {
		if e := &pod.Spec.EphemeralContainers[i]; e.Name == name {
			return (*corev1.Container)(&e.EphemeralContainerCommon)
		}
	}
	return nil
}

// stopContainer stops one container.
func (w *worker) stopContainer(ctx context.Context, pod *corev1.Pod, runtime *cri.Pod, s stopping) error {
	grace := w.graceOf(pod)
	if s.Grace != nil && pod.DeletionGracePeriodSeconds == nil {
		grace = seconds(*s.Grace)
	}
	inner, cancel := w.interruptible(ctx, false)
	defer cancel()
	err := w.killContainer(inner, pod, spec(pod, s.Name), s.ID, w.k.podIPs(runtime), s.Message, grace, nil)
	if inner.Err() != nil && ctx.Err() == nil {
		return nil // it is to end sooner: it will be looked at again
	}
	return err
}

// killContainer has a container end: it runs its hook, waits for its turn, asks it to end, and kills it when its time is over.
func (w *worker) killContainer(ctx context.Context, pod *corev1.Pod, c *corev1.Container, id string, ips []string, message string, grace time.Duration, turns *turns) error {
	s, first := w.beginStop(id, grace)
	if first {
		if message == "" {
			message = "Stopping container " + c.Name
		}
		w.k.recorder.Event(containerRef(pod, c.Name), corev1.EventTypeNormal, "Killing", message)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil && grace > 0 && !s.hooked {
		w.preStop(ctx, pod, c, id, ips, s)
	}
	if turns != nil {
		turns.wait(ctx, c.Name, s.deadline)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err := w.k.options.Runtime.StopContainer(ctx, id, max(time.Until(s.deadline), leastGrace))
	if err != nil && !cri.IsNotFound(err) {
		return fmt.Errorf("stopping container %s: %w", c.Name, err)
	}
	return nil
}

// beginStop begins to stop a container, or goes on with it; a shorter grace period counts from now.
func (w *worker) beginStop(id string, grace time.Duration) (s *stop, first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	deadline := time.Now().Add(grace)
	if s = w.stops[id]; s == nil {
		s, first = &stop{deadline: deadline}, true
		w.stops[id] = s
	} else if deadline.Before(s.deadline) {
		s.deadline = deadline
	}
	return s, first
}

func (w *worker) preStop(ctx context.Context, pod *corev1.Pod, c *corev1.Container, id string, ips []string, s *stop) {
	s.hooked = true
	inner, cancel := context.WithDeadline(ctx, s.deadline)
	defer cancel()
	if _, err := w.k.runHook(inner, pod, c, id, ips, c.Lifecycle.PreStop); err != nil && ctx.Err() == nil {
		w.k.recorder.Event(containerRef(pod, c.Name), corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed") // what it said may be a secret
	}
}

// turns keep sidecars running as long as what they serve: each waits for all ordinary containers, and for the sidecars that started after it.
type turns struct {
	done  map[string]chan struct{} // of containers that run; closed when they have ended
	waits map[string][]string
}

// newTurns works out who waits for whom. It is nil if nobody does.
func newTurns(pod *corev1.Pod, running []*cri.Container) *turns {
	sidecar := func(c corev1.Container) bool { return status.Sidecar(&c) }
	if pod == nil || !slices.ContainsFunc(pod.Spec.InitContainers, sidecar) {
		return nil
	}
	t := &turns{done: map[string]chan struct{}{}, waits: map[string][]string{}}
	for _, c := range running {
		t.done[c.Name] = make(chan struct{})
	}
	var before []string
	for i := range pod.Spec.Containers {
		before = append(before, pod.Spec.Containers[i].Name)
	}
	for _, c := range slices.Backward(pod.Spec.InitContainers) {
		if sidecar(c) {
			t.waits[c.Name] = slices.Clone(before)
			before = append(before, c.Name)
		}
	}
	return t
}

func (t *turns) wait(ctx context.Context, name string, deadline time.Time) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for _, other := range t.waits[name] {
		if done := t.done[other]; done != nil {
			select {
			case <-done:
			case <-ctx.Done():
				return
			}
		}
	}
}

func (t *turns) ended(name string) {
	if t != nil && t.done[name] != nil {
		close(t.done[name])
	}
}
