package kubelet

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/client"
	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/status"
)

// resync is how often a pod is synced when nothing happens: its volumes are refreshed then.
const resync = time.Minute

// deferredRetry is how often a deferred resize is tried again.
const deferredRetry = 10 * time.Second

// maxSteps bounds how many plans one sync executes one after another. Needing more than one per container is a sign of a loop.
const maxSteps = 64

// sync observes the pod in the runtime, computes and writes its status, decides what to do and does it, until there is nothing left to do. It returns when to
// sync again if nothing wakes the worker before, and whether nothing of the pod is left.
func (w *worker) sync(ctx context.Context) (requeueAt time.Time, done bool, err error) {
	pod, deleted := w.latest()
	if pod == nil {
		return time.Time{}, true, w.terminateOrphan(ctx)
	}
	ctx = client.Because(ctx, pod)
	if !w.pickupReported {
		w.pickupReported = true
		w.k.stage(pod, StagePickup, "", w.firstSeen, nil)
	}
	for range maxSteps {
		runtime, err := w.k.observer.Observe(ctx, w.uid)
		if err != nil {
			return time.Time{}, false, err
		}
		w.checkEvicted()
		if deleted || pod.DeletionTimestamp != nil || w.podFailure != nil || status.IsTerminal(pod.Status.Phase) {
			return w.terminate(ctx, pod, deleted, runtime)
		}
		if !w.admit(pod, runtime) {
			return time.Time{}, false, nil
		}
		pod = w.allocate(pod)
		w.checkDeadline(pod)
		s := w.status(pod, runtime, false)
		w.k.writer.Set(pod, s, true)
		if status.IsTerminal(s.Phase) {
			if w.podFailure == nil && s.Phase == corev1.PodFailed && s.Reason != "" {
				w.podFailure = &status.Failure{Reason: s.Reason, Message: s.Message}
			}
			return w.terminate(ctx, pod, deleted, runtime)
		}
		p := decide(observed{pod: pod, runtime: runtime, status: s, probeFailures: w.k.probeFailure(pod), backOffs: w.k.backOffs.get(w.uid),
			updatedResources: w.updatedResources, resources: func(c *corev1.Container) *runtimeapi.LinuxContainerResources { return w.k.linuxResources(pod, c) }, restartAll: status.RestartingAll(s), now: time.Now()})
		requeueAt := w.recordBackOffs(pod, p)
		if len(p.Update) == 0 {
			w.resized(pod)
		}
		if p.idle() {
			w.k.writer.Set(pod, w.status(pod, runtime, false), true) // with the containers that wait for their back-off
			return w.nextSync(pod, requeueAt), false, w.refresh(ctx, pod, runtime)
		}
		if err := w.execute(ctx, pod, runtime, p); err != nil {
			if runtime, observeErr := w.k.observer.Observe(ctx, w.uid); observeErr == nil {
				w.k.writer.Set(pod, w.status(pod, runtime, false), true)
			}
			var wait *retryAt
			if errors.As(err, &wait) {
				requeueAt, err = earlier(requeueAt, wait.until), nil
			}
			return w.nextSync(pod, requeueAt), false, err
		}
		select {
		case <-w.signal: // the next step observes what it was about
		default:
		}
		if pod, deleted = w.latest(); w.k.isStopping() {
			return time.Time{}, false, nil
		}
	}
	return time.Now().Add(minRetry), false, nil
}

// status computes the pod's status from what was observed in the runtime. terminated says that no container runs or will run.
func (w *worker) status(pod *corev1.Pod, runtime *cri.Pod, terminated bool) *corev1.PodStatus {
	old, ok := w.k.writer.Get(w.uid)
	if !ok {
		old = &pod.Status
	}
	if ips := runtime.IPs(); len(ips) > 0 {
		w.lastPodIPs = ips
	}
	s := status.Of(status.Input{Pod: pod, Runtime: runtime, Old: old, Terminated: terminated, Failed: w.podFailure, DisruptionTarget: w.disruptionTarget, Failures: w.startFailures, RuntimeName: w.k.runtime.name(),
		Ready:   func(s *corev1.PodStatus) { w.k.probes.Follow(pod, s) },
		HostIPs: w.k.options.NodeIPs, IPs: w.statusIPs(pod, terminated), Resize: w.resizeConditions(), RecursiveReadOnly: w.k.runtime.recursiveReadOnly(), Now: time.Now()})
	return s
}

// statusIPs returns the IPs that a terminating pod had, nil for other pods.
func (w *worker) statusIPs(pod *corev1.Pod, terminated bool) []string {
	if !terminated && pod.DeletionTimestamp == nil && w.podFailure == nil && !w.podTerminated {
		return nil
	}
	if len(w.lastPodIPs) == 0 {
		for _, ip := range pod.Status.PodIPs {
			w.lastPodIPs = append(w.lastPodIPs, ip.IP)
		}
	}
	return w.lastPodIPs
}

// recordBackOffs records which containers wait for their back-off, and returns when the first back-off is over, zero if there is none.
func (w *worker) recordBackOffs(pod *corev1.Pod, p plan) (requeueAt time.Time) {
	for _, wait := range p.Wait {
		f := crashLoop(pod, wait)
		if w.startFailures[wait.Container.Name] != f {
			w.startFailures[wait.Container.Name] = f
			w.k.recorder.Eventf(containerRef(pod, wait.Container.Name), corev1.EventTypeWarning, "BackOff", "Back-off restarting failed container %s in pod %s",
				wait.Container.Name, podName(pod))
		}
		requeueAt = earlier(requeueAt, wait.Until)
	}
	return requeueAt
}

// nextSync returns when to sync the pod again: at requeueAt, its active deadline, the retry of a deferred resize, or the resync, whichever is first.
func (w *worker) nextSync(pod *corev1.Pod, requeueAt time.Time) time.Time {
	requeueAt = earlier(requeueAt, w.deadline(pod))
	if w.resizePending != nil {
		requeueAt = earlier(requeueAt, time.Now().Add(deferredRetry)) // another pod may have freed resources
	}
	from := time.Now()
	if !w.mountedAt.IsZero() && time.Since(w.mountedAt) < resync {
		from = w.mountedAt // however often the pod was synced since, its volumes must be refreshed within resync
	}
	return earlier(requeueAt, from.Add(resync+rand.N(resync/2))) // jitter, for pods that were started together
}

// earlier returns the earlier of two times, where zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// refresh brings a running pod's host ports and volumes up to date.
func (w *worker) refresh(ctx context.Context, pod *corev1.Pod, runtime *cri.Pod) error {
	if err := w.setPorts(pod, runtime.IPs()); err != nil {
		return err
	}
	if time.Since(w.mountedAt) < resync && samePodInfo(w.mountedPod, pod) {
		return nil
	}
	return w.mount(ctx, pod)
}

// samePodInfo reports whether downwardAPI volumes have the same content for two versions of a pod.
func samePodInfo(a, b *corev1.Pod) bool {
	return a != nil && a.Generation == b.Generation && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations)
}

// deadline returns when the pod's activeDeadlineSeconds are over; zero is never.
func (w *worker) deadline(pod *corev1.Pod) time.Time {
	start := pod.Status.StartTime
	if s, ok := w.k.writer.Get(w.uid); ok && s.StartTime != nil {
		start = s.StartTime
	}
	if pod.Spec.ActiveDeadlineSeconds == nil || start == nil {
		return time.Time{}
	}
	return start.Add(time.Duration(*pod.Spec.ActiveDeadlineSeconds) * time.Second)
}

// checkDeadline has a pod fail that was active longer than its activeDeadlineSeconds.
func (w *worker) checkDeadline(pod *corev1.Pod) {
	if d := w.deadline(pod); w.podFailure == nil && !d.IsZero() && !time.Now().Before(d) {
		w.podFailure = &status.Failure{Reason: "DeadlineExceeded", Message: "Pod was active on the node longer than the specified deadline"}
		w.k.recorder.Event(pod, corev1.EventTypeNormal, "DeadlineExceeded", w.podFailure.Message)
	}
}
