package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/status"
)

// end ends a pod: it stops what runs, reports how that went, cleans up, and when nothing is left says so. It says whether the worker's work is done.
func (w *worker) end(ctx context.Context, pod *corev1.Pod, gone bool, runtime *cri.Pod) (again time.Time, done bool, err error) {
	if !w.finished {
		if w.disrupted && w.isFull() {
			if err := w.makeRoom(ctx); err != nil {
				return time.Time{}, false, err
			}
		}
		if err := w.stopAll(ctx, pod, gone, runtime); err != nil {
			return time.Time{}, false, err
		}
		if runtime, err = w.k.observer.Look(ctx, w.uid); err != nil {
			return time.Time{}, false, err
		}
		if running := runtime.Running(); len(running) > 0 {
			return time.Time{}, false, fmt.Errorf("%d containers run after all were stopped", len(running))
		}
		w.k.probes.Forget(w.uid)
		last := w.lastStatus(pod, runtime)
		w.k.writer.Set(pod, last, false)
		if err := w.cleanUp(ctx); err != nil {
			return time.Time{}, false, err
		}
		w.setFinished()
	}
	if !gone && pod.DeletionTimestamp == nil { // its containers stay, for whoever wants to see their logs
		w.k.writer.Finish(pod, status.Finished(pod, w.reported(pod)))
		return time.Time{}, false, nil
	}
	if !w.removed {
		if err := w.remove(ctx, pod); err != nil {
			return time.Time{}, false, err
		}
		w.removed = true
	}
	if gone {
		return time.Time{}, true, nil
	}
	w.k.writer.Finish(pod, status.Finished(pod, w.reported(pod)))
	return time.Time{}, false, nil
}

func (w *worker) setFinished() {
	w.finished = true
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cleaned = true
}

// stopAll stops all of a pod.
func (w *worker) stopAll(ctx context.Context, pod *corev1.Pod, gone bool, runtime *cri.Pod) error {
	if len(runtime.Running()) > 0 && !status.Ended(pod.Status.Phase) {
		w.k.writer.Set(pod, w.status(pod, runtime, false), true)
	}
	w.k.probes.Terminating(w.uid)
	inner, cancel := w.interruptible(ctx, true)
	defer cancel()
	grace := w.graceOf(pod)
	if now, _ := w.latest(); now != nil { // less grace may have been given before there was anything to interrupt
		grace = min(grace, w.graceOf(now))
	}
	if w.disrupted {
		grace = 0 // there is no time to lose
	}
	err := w.stopReporting(ctx, pod, func() error { return w.stopPod(inner, pod, runtime, max(grace, time.Second)) })
	if inner.Err() != nil && ctx.Err() == nil {
		return errInterrupted // it is to end sooner, or the kubelet
	}
	if err != nil {
		w.k.recorder.Eventf(pod, corev1.EventTypeWarning, "FailedKillPod", "error killing pod: %v", err)
	}
	return err
}

// stopReporting runs stop, which takes as long as the pod's grace period, and meanwhile reports what becomes of the pod: its readiness is probed
// until its containers have ended, so that it gets no more requests once it does not want any.
func (w *worker) stopReporting(ctx context.Context, pod *corev1.Pod, stop func() error) error {
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	woken := false
	for {
		select {
		case err := <-stopped:
			if woken {
				w.wake() // what the signal was about may be for the next sync
			}
			return err
		case <-w.signal:
			woken = true
			w.reportStopping(ctx, pod)
		}
	}
}

// reportStopping reports the status of a pod that is being stopped, as a whole or a container of it, and whose containers have not all ended.
func (w *worker) reportStopping(ctx context.Context, pod *corev1.Pod) {
	if now, gone := w.latest(); gone {
		return
	} else if pod.DeletionTimestamp != nil && now != nil {
		pod = now // with the conditions of its readiness gates
	}
	runtime, err := w.k.observer.Look(ctx, w.uid)
	if err != nil || len(runtime.Running()) == 0 || status.Ended(pod.Status.Phase) {
		return // the status after the stop says it
	}
	w.k.writer.Set(pod, w.status(pod, runtime, false), true)
}

// lastStatus is the status of a pod that has ended.
func (w *worker) lastStatus(pod *corev1.Pod, runtime *cri.Pod) *corev1.PodStatus {
	if status.Ended(pod.Status.Phase) && runtime.Empty() {
		return &pod.Status // it ended long ago
	}
	return w.status(pod, runtime, true)
}

func (w *worker) reported(pod *corev1.Pod) *corev1.PodStatus {
	if s, ok := w.k.writer.Get(w.uid); ok {
		return s
	}
	return &pod.Status
}

// cleanUp gives back what a pod had of the node while it ran.
func (w *worker) cleanUp(ctx context.Context) error {
	return errors.Join(w.removePorts(), w.k.options.Volumes.TearDown(ctx, w.uid), w.k.options.Cgroups.Remove(w.uid))
}

// remove removes all that is left of a pod: from the runtime, its directory, its logs.
func (w *worker) remove(ctx context.Context, pod *corev1.Pod) error {
	runtime, err := w.k.observer.Look(ctx, w.uid)
	if err != nil {
		return err
	}
	for _, c := range runtime.Containers {
		if err := w.k.logs.RemoveLink(pod.Name, pod.Namespace, c.Name, c.ID); err != nil {
			return err
		}
	}
	for _, s := range runtime.Sandboxes {
		if err := w.k.options.Runtime.RemovePodSandbox(ctx, s.Id); err != nil && !cri.IsNotFound(err) {
			return err
		}
	}
	for _, c := range runtime.Containers { // whose sandbox is gone
		if err := w.k.options.Runtime.RemoveContainer(ctx, c.ID); err != nil && !cri.IsNotFound(err) {
			return err
		}
	}
	if err := os.RemoveAll(w.k.logs.PodDir(pod)); err != nil {
		return err
	}
	return w.k.removePodDir(pod)
}

// removePodDir removes a pod's directory. Its volumes are gone already: whatever is still there was not put there by this kubelet and may
// be a mount, so only what is known is removed with all that is in it.
func (k *Kubelet) removePodDir(pod *corev1.Pod) error {
	dir := k.podDir(pod)
	for _, name := range []string{"etc-hosts", cri.TerminationMessageDir} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	for _, name := range []string{"volumes", "plugins", "volume-subpaths", ""} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

// removeContainer removes a run of a container.
func (w *worker) removeContainer(ctx context.Context, r removal) error {
	if r.Kill {
		if err := w.k.options.Runtime.StopContainer(ctx, r.ID, 0); err != nil && !cri.IsNotFound(err) {
			return err
		}
	}
	s, err := w.k.options.Runtime.ContainerStatus(ctx, r.ID)
	if cri.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if !r.KeepLogs {
		w.k.logs.Remove(s.LogPath)
	}
	if err := w.k.logs.RemoveLink(s.Labels[cri.LabelPodName], s.Labels[cri.LabelPodNamespace], r.Name, r.ID); err != nil {
		return err
	}
	if err := w.k.options.Runtime.RemoveContainer(ctx, r.ID); err != nil && !cri.IsNotFound(err) {
		return err
	}
	return nil
}

// endOrphan ends a pod that the runtime has and the API does not know: what its containers say of it is all there is to go by.
func (w *worker) endOrphan(ctx context.Context) error {
	runtime, err := w.k.observer.Look(ctx, w.uid)
	if err != nil {
		return err
	}
	pod := &corev1.Pod{}
	pod.UID = w.uid
	if len(runtime.Containers) > 0 {
		pod, _ = runtime.Containers[0].Restored(w.uid)
	}
	if len(runtime.Sandboxes) > 0 {
		m := runtime.Sandboxes[0].Metadata
		pod.Name, pod.Namespace = m.GetName(), m.GetNamespace()
	}
	inner, cancel := w.interruptible(ctx, true)
	defer cancel()
	if err := w.stopPod(inner, pod, runtime, max(w.graceOf(pod), time.Second)); err != nil {
		return err
	}
	if err := w.cleanUp(ctx); err != nil {
		return err
	}
	if pod.Name == "" { // nothing but a directory is left of it
		return w.k.removePodDir(pod)
	}
	return w.remove(ctx, pod)
}
