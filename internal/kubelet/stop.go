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

// minGrace is how long a container may take to exit in any case: killing one that is just about to exit helps nobody.
const minGrace = 2 * time.Second

// containerStop is a stop of a container that was begun. It may take several tries: none starts the grace period or the preStop hook again.
type containerStop struct {
	deadline   time.Time // when the grace period is over
	preStopRun bool      // the preStop hook was started
}

// gracePeriod returns how long the containers of a pod may take to exit.
func (w *worker) gracePeriod(pod *corev1.Pod) time.Duration {
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		return seconds(*pod.DeletionGracePeriodSeconds)
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return seconds(*pod.Spec.TerminationGracePeriodSeconds)
	}
	return minGrace
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

// stopPod stops all containers of a pod, sidecars last, and then its sandboxes.
func (w *worker) stopPod(ctx context.Context, pod *corev1.Pod, runtime *cri.Pod, grace time.Duration) error {
	running := runtime.Running()
	order, podIPs := newTerminationOrder(pod, running), w.k.podIPs(runtime)
	errs := make([]error, len(running))
	var wg sync.WaitGroup
	for i, r := range running {
		owner, c := pod, spec(pod, r.Name)
		if c == nil { // the pod does not have it any more, or the API does not know the pod
			owner, c = r.Restored(w.uid)
		}
		wg.Go(func() {
			if errs[i] = w.killContainer(ctx, owner, c, r.ID, podIPs, "", grace, order); errs[i] == nil {
				order.exited(r.Name)
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

// spec returns the container of a name, of any kind; nil if there is none.
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

// stopContainer stops one container of a pod that keeps running.
func (w *worker) stopContainer(ctx context.Context, pod *corev1.Pod, runtime *cri.Pod, s stopping) error {
	grace := w.gracePeriod(pod)
	if s.Grace != nil && pod.DeletionGracePeriodSeconds == nil {
		grace = seconds(*s.Grace)
	}
	inner, cancel := w.interruptible(ctx, false)
	defer cancel()
	err := w.killContainer(inner, pod, spec(pod, s.Name), s.ID, w.k.podIPs(runtime), s.Message, grace, nil)
	if inner.Err() != nil && ctx.Err() == nil {
		return nil // the pod is to terminate: the next sync sees to it
	}
	return err
}

// killContainer stops a container: it runs the preStop hook, waits for the containers that stop before it, and has the runtime send SIGTERM, and SIGKILL when
// the grace period is over. order may be nil.
func (w *worker) killContainer(ctx context.Context, pod *corev1.Pod, c *corev1.Container, id string, podIPs []string, message string, grace time.Duration, order *terminationOrder) error {
	s, first := w.beginStop(id, grace)
	if first {
		if message == "" {
			message = "Stopping container " + c.Name
		}
		w.k.recorder.Event(containerRef(pod, c.Name), corev1.EventTypeNormal, "Killing", message)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil && grace > 0 && !s.preStopRun {
		w.preStop(ctx, pod, c, id, podIPs, s)
	}
	if order != nil {
		order.wait(ctx, c.Name, s.deadline)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err := w.k.options.Runtime.StopContainer(ctx, id, max(time.Until(s.deadline), minGrace))
	if err != nil && !cri.IsNotFound(err) {
		return fmt.Errorf("stopping container %s: %w", c.Name, err)
	}
	return nil
}

// beginStop returns the stop of a container, which it begins if first is true. A shorter grace period than before counts from now.
func (w *worker) beginStop(id string, grace time.Duration) (s *containerStop, first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	deadline := time.Now().Add(grace)
	if s = w.containerStops[id]; s == nil {
		s, first = &containerStop{deadline: deadline}, true
		w.containerStops[id] = s
	} else if deadline.Before(s.deadline) {
		s.deadline = deadline
	}
	return s, first
}

// preStop runs the preStop hook, at most until the grace period is over.
func (w *worker) preStop(ctx context.Context, pod *corev1.Pod, c *corev1.Container, id string, podIPs []string, s *containerStop) {
	s.preStopRun = true
	inner, cancel := context.WithDeadline(ctx, s.deadline)
	defer cancel()
	if message, err := w.k.runHook(inner, pod, c, id, podIPs, c.Lifecycle.PreStop); err != nil && ctx.Err() == nil {
		w.k.recorder.Event(containerRef(pod, c.Name), corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed") // its output may have secrets
		w.k.options.Log.Warn("a preStop hook failed", "pod", podName(pod), "container", c.Name, "error", message)
	}
}

// terminationOrder keeps sidecars running as long as what they serve: each waits for all regular containers, and for the sidecars that started after it.
type terminationOrder struct {
	exits    map[string]chan struct{} // closed when a running container has exited, by name
	waitsFor map[string][]string      // the containers that a sidecar waits for, by name
}

// newTerminationOrder returns the order in which running containers are stopped, nil if there are no sidecars.
func newTerminationOrder(pod *corev1.Pod, running []*cri.Container) *terminationOrder {
	sidecar := func(c corev1.Container) bool { return status.IsSidecar(&c) }
	if pod == nil || !slices.ContainsFunc(pod.Spec.InitContainers, sidecar) {
		return nil
	}
	t := &terminationOrder{exits: map[string]chan struct{}{}, waitsFor: map[string][]string{}}
	for _, c := range running {
		t.exits[c.Name] = make(chan struct{})
	}
	var before []string
	for i := range pod.Spec.Containers {
		before = append(before, pod.Spec.Containers[i].Name)
	}
	for _, c := range slices.Backward(pod.Spec.InitContainers) {
		if sidecar(c) {
			t.waitsFor[c.Name] = slices.Clone(before)
			before = append(before, c.Name)
		}
	}
	return t
}

// wait waits until all containers that stop before a container have exited, at most until deadline.
func (t *terminationOrder) wait(ctx context.Context, name string, deadline time.Time) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for _, other := range t.waitsFor[name] {
		if exited := t.exits[other]; exited != nil {
			select {
			case <-exited:
			case <-ctx.Done():
				return
			}
		}
	}
}

// exited notes that a container has exited.
func (t *terminationOrder) exited(name string) {
	if t != nil && t.exits[name] != nil {
		close(t.exits[name])
	}
}
