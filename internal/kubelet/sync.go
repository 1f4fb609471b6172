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

// resync is how often a pod is looked at when nothing happens: volumes are brought up to date then.
const resync = time.Minute

// deferredEvery is how often it is looked whether the node has what it did not have for a pod that wants more.
const deferredEvery = 10 * time.Second

// maxSteps bounds how often a pod is looked at again at once because something was done about it. More than each of its containers being
// started once is a sign that something goes round in circles.
const maxSteps = 64

// sync brings a pod closer to where it should be. It says when to look again if nothing happens until then, and whether nothing of the pod
// is left.
func (w *worker) sync(ctx context.Context) (again time.Time, done bool, err error) {
	pod, gone := w.latest()
	if pod == nil {
		return time.Time{}, true, w.endOrphan(ctx)
	}
	ctx = client.Because(ctx, pod)
	if !w.hasPickup {
		w.hasPickup = true
		w.k.stage(pod, StagePickup, "", w.seen, nil)
	}
	for range maxSteps {
		runtime, err := w.k.observer.Look(ctx, w.uid)
		if err != nil {
			return time.Time{}, false, err
		}
		w.checkEvicted()
		if gone || pod.DeletionTimestamp != nil || w.failed != nil || status.Ended(pod.Status.Phase) {
			return w.end(ctx, pod, gone, runtime)
		}
		if !w.admit(pod, runtime) {
			return time.Time{}, false, nil
		}
		pod = w.allocate(pod)
		w.checkDeadline(pod)
		s := w.status(pod, runtime, false)
		w.k.writer.Set(pod, s, true)
		if status.Ended(s.Phase) {
			if w.failed == nil && s.Phase == corev1.PodFailed && s.Reason != "" {
				w.failed = &status.Failure{Reason: s.Reason, Message: s.Message}
			}
			return w.end(ctx, pod, gone, runtime)
		}
		p := decide(observed{pod: pod, runtime: runtime, status: s, failed: w.k.probeFailure(pod), backOffs: w.k.backOffs.get(w.uid),
			updated: w.updated, resources: func(c *corev1.Container) *runtimeapi.LinuxContainerResources { return w.k.linuxResources(pod, c) }, restartAll: status.RestartingAll(s), now: time.Now()})
		again := w.waitFor(pod, runtime, p)
		if len(p.Update) == 0 {
			w.resized(pod)
		}
		if p.idle() {
			w.k.writer.Set(pod, w.status(pod, runtime, false), true) // with what waits for a time
			return w.next(pod, again), false, w.upkeep(ctx, pod, runtime)
		}
		if err := w.carryOut(ctx, pod, runtime, p); err != nil {
			if runtime, look := w.k.observer.Look(ctx, w.uid); look == nil {
				w.k.writer.Set(pod, w.status(pod, runtime, false), true)
			}
			var wait *later
			if errors.As(err, &wait) {
				again, err = earlier(again, wait.until), nil
			}
			return w.next(pod, again), false, err
		}
		select {
		case <-w.signal: // what it was about is looked at now
		default:
		}
		if pod, gone = w.latest(); w.k.isStopping() {
			return time.Time{}, false, nil
		}
	}
	return time.Now().Add(firstRetry), false, nil
}

// status is the pod's status as it follows from what the runtime knows.
func (w *worker) status(pod *corev1.Pod, runtime *cri.Pod, over bool) *corev1.PodStatus {
	old, ok := w.k.writer.Get(w.uid)
	if !ok {
		old = &pod.Status
	}
	if ips := runtime.IPs(); len(ips) > 0 {
		w.ips = ips
	}
	s := status.Of(status.Input{Pod: pod, Runtime: runtime, Old: old, Over: over, Failed: w.failed, Disrupted: w.disrupted, Failures: w.failures, RuntimeName: w.k.runtime.name(),
		Ready:   func(s *corev1.PodStatus) { w.k.probes.Follow(pod, s) },
		HostIPs: w.k.options.NodeIPs, IPs: w.lastIPs(pod, over), Resize: w.resizeConditions(), RecursiveReadOnly: w.k.runtime.recursiveReadOnly(), Now: time.Now()})
	return s
}

// lastIPs are the addresses that a pod had, if it is ending.
func (w *worker) lastIPs(pod *corev1.Pod, over bool) []string {
	if !over && pod.DeletionTimestamp == nil && w.failed == nil && !w.finished {
		return nil
	}
	if len(w.ips) == 0 {
		for _, ip := range pod.Status.PodIPs {
			w.ips = append(w.ips, ip.IP)
		}
	}
	return w.ips
}

// waitFor notes which containers wait before they are started again, and says until when.
func (w *worker) waitFor(pod *corev1.Pod, runtime *cri.Pod, p plan) (again time.Time) {
	for _, wait := range p.Wait {
		f := crashLoop(pod, wait)
		if w.failures[wait.Container.Name] != f {
			w.failures[wait.Container.Name] = f
			w.k.recorder.Eventf(containerRef(pod, wait.Container.Name), corev1.EventTypeWarning, "BackOff", "Back-off restarting failed container %s in pod %s",
				wait.Container.Name, podName(pod))
		}
		again = earlier(again, wait.Until)
	}
	return again
}

// next is when to look again.
func (w *worker) next(pod *corev1.Pod, again time.Time) time.Time {
	again = earlier(again, w.deadline(pod))
	if w.pending != nil {
		again = earlier(again, time.Now().Add(deferredEvery)) // another pod may have gone
	}
	from := time.Now()
	if !w.mounted.IsZero() && time.Since(w.mounted) < resync {
		from = w.mounted // however often it was looked at since, its volumes are not to grow older than that
	}
	return earlier(again, from.Add(resync+rand.N(resync/2))) // pods that were started together need not all be looked at together
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// upkeep keeps what a running pod needs up to date.
func (w *worker) upkeep(ctx context.Context, pod *corev1.Pod, runtime *cri.Pod) error {
	if err := w.setPorts(pod, runtime.IPs()); err != nil {
		return err
	}
	if time.Since(w.mounted) < resync && showsSame(w.shown, pod) {
		return nil
	}
	return w.mount(ctx, pod)
}

// showsSame says whether volumes that show something of the pod itself show the same of both versions of it.
func showsSame(a, b *corev1.Pod) bool {
	return a != nil && a.Generation == b.Generation && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations)
}

// deadline is when the pod's time is over; zero is never.
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

// checkDeadline has a pod fail that took too long.
func (w *worker) checkDeadline(pod *corev1.Pod) {
	if d := w.deadline(pod); w.failed == nil && !d.IsZero() && !time.Now().Before(d) {
		w.failed = &status.Failure{Reason: "DeadlineExceeded", Message: "Pod was active on the node longer than the specified deadline"}
		w.k.recorder.Event(pod, corev1.EventTypeNormal, "DeadlineExceeded", w.failed.Message)
	}
}
