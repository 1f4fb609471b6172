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

// terminate terminates a pod: it stops its containers, writes the last status, cleans up, and removes what is left of a deleted pod. done reports whether
// nothing of the pod is left.
func (w *worker) terminate(ctx context.Context, pod *corev1.Pod, deleted bool, runtime *cri.Pod) (requeueAt time.Time, done bool, err error) {
	if !w.podTerminated {
		if w.disruptionTarget && w.isDiskFull() {
			if err := w.makeRoom(ctx); err != nil {
				return time.Time{}, false, err
			}
		}
		if err := w.stopAll(ctx, pod, runtime); err != nil {
			return time.Time{}, false, err
		}
		if runtime, err = w.k.observer.Observe(ctx, w.uid); err != nil {
			return time.Time{}, false, err
		}
		if running := runtime.Running(); len(running) > 0 {
			return time.Time{}, false, fmt.Errorf("%d containers still run after all were stopped", len(running))
		}
		w.k.probes.Forget(w.uid)
		last := w.lastStatus(pod, runtime)
		w.k.writer.Set(pod, last, false)
		if err := w.cleanUp(ctx); err != nil {
			return time.Time{}, false, err
		}
		w.setTerminated()
	}
	if !deleted && pod.DeletionTimestamp == nil { // its containers stay, for their logs
		w.k.writer.Finish(pod, status.Finished(pod, w.reported(pod)))
		return time.Time{}, false, nil
	}
	if !w.runtimeCleaned {
		if err := w.remove(ctx, pod); err != nil {
			return time.Time{}, false, err
		}
		w.runtimeCleaned = true
	}
	if deleted {
		return time.Time{}, true, nil
	}
	w.k.writer.Finish(pod, status.Finished(pod, w.reported(pod)))
	return time.Time{}, false, nil
}

// setTerminated notes that the pod has terminated and was cleaned up.
func (w *worker) setTerminated() {
	w.podTerminated = true
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cleanupDone = true
}

// stopAll stops all containers and sandboxes of a pod, within its grace period.
func (w *worker) stopAll(ctx context.Context, pod *corev1.Pod, runtime *cri.Pod) error {
	if len(runtime.Running()) > 0 && !status.IsTerminal(pod.Status.Phase) {
		w.k.writer.Set(pod, w.status(pod, runtime, false), true)
	}
	w.k.probes.Terminating(w.uid)
	inner, cancel := w.interruptible(ctx, true)
	defer cancel()
	grace := w.gracePeriod(pod)
	if now, _ := w.latest(); now != nil { // the grace period may have been shortened before there was anything to interrupt
		grace = min(grace, w.gracePeriod(now))
	}
	if w.disruptionTarget {
		grace = 0 // the node is short of a resource now
	}
	err := w.stopAndReport(ctx, pod, func() error { return w.stopPod(inner, pod, runtime, max(grace, time.Second)) })
	if inner.Err() != nil && ctx.Err() == nil {
		return errInterrupted // the grace period was shortened, or the kubelet is stopping
	}
	if err != nil {
		w.k.recorder.Eventf(pod, corev1.EventTypeWarning, "FailedKillPod", "error killing pod: %v", err)
	}
	return err
}

// stopAndReport runs stop, which may take as long as the pod's grace period, and meanwhile writes the pod's status: its readiness is probed until its
// containers have exited, so that it gets no more requests once it is not ready.
func (w *worker) stopAndReport(ctx context.Context, pod *corev1.Pod, stop func() error) error {
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	woken := false
	for {
		select {
		case err := <-stopped:
			if woken {
				w.wake() // the signal may be about something that the next sync has to do
			}
			return err
		case <-w.signal:
			woken = true
			w.reportStopping(ctx, pod)
		}
	}
}

// reportStopping writes the status of a pod some of whose containers are being stopped and still run.
func (w *worker) reportStopping(ctx context.Context, pod *corev1.Pod) {
	if now, deleted := w.latest(); deleted {
		return
	} else if pod.DeletionTimestamp != nil && now != nil {
		pod = now // with the conditions of its readiness gates
	}
	runtime, err := w.k.observer.Observe(ctx, w.uid)
	if err != nil || len(runtime.Running()) == 0 || status.IsTerminal(pod.Status.Phase) {
		return // the status is written after the stop
	}
	w.k.writer.Set(pod, w.status(pod, runtime, false), true)
}

// lastStatus returns the status of a pod that has terminated.
func (w *worker) lastStatus(pod *corev1.Pod, runtime *cri.Pod) *corev1.PodStatus {
	if status.IsTerminal(pod.Status.Phase) && runtime.Empty() {
		return &pod.Status // it terminated before this process started
	}
	return w.status(pod, runtime, true)
}

// reported returns the status that was set last.
func (w *worker) reported(pod *corev1.Pod) *corev1.PodStatus {
	if s, ok := w.k.writer.Get(w.uid); ok {
		return s
	}
	return &pod.Status
}

// cleanUp removes the host ports, volumes, devices and cgroup of a pod that has terminated.
func (w *worker) cleanUp(ctx context.Context) error {
	return errors.Join(w.removePorts(), w.k.options.Volumes.TearDown(ctx, w.uid), w.k.dra.Unprepare(ctx, w.uid), w.k.devices.Release(w.uid), w.k.options.Cgroups.Remove(w.uid))
}

// remove removes what is left of a pod: its sandboxes and containers in the runtime, its logs, its directory.
func (w *worker) remove(ctx context.Context, pod *corev1.Pod) error {
	runtime, err := w.k.observer.Observe(ctx, w.uid)
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
	for _, c := range runtime.Containers { // those whose sandbox was removed before
		if err := w.k.options.Runtime.RemoveContainer(ctx, c.ID); err != nil && !cri.IsNotFound(err) {
			return err
		}
	}
	if err := os.RemoveAll(w.k.logs.PodDir(pod)); err != nil {
		return err
	}
	return w.k.removePodDir(pod)
}

// removePodDir removes a pod's directory. Its volumes were removed before: whatever else is in it was not put there by this kubelet and may be a mount, so
// only known files and empty directories are removed.
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

// terminateOrphan terminates a pod that the runtime has and the API does not know. The labels and annotations of its containers say how.
func (w *worker) terminateOrphan(ctx context.Context) error {
	runtime, err := w.k.observer.Observe(ctx, w.uid)
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
	if err := w.stopPod(inner, pod, runtime, max(w.gracePeriod(pod), time.Second)); err != nil {
		return err
	}
	if err := w.cleanUp(ctx); err != nil {
		return err
	}
	if pod.Name == "" { // only its directory is left
		return w.k.removePodDir(pod)
	}
	return w.remove(ctx, pod)
}
