package kubelet

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/kubelet/eviction"
	"skiff/internal/kubelet/housekeeping"
	"skiff/internal/kubelet/status"
	"skiff/internal/kubelet/volume"
)

// evictionTimeout is how long an evicted pod is waited for before the next one is evicted.
const evictionTimeout = 30 * time.Second

// podWorkers gives housekeeping access to the pods and their workers.
type podWorkers struct{ k *Kubelet }

var _ housekeeping.Pods = podWorkers{}

// List returns the pods that the API has for this node.
func (p podWorkers) List() ([]*corev1.Pod, error) { return p.k.podLister.List(everything) }

// HasWorker reports whether a pod has a worker.
func (p podWorkers) HasWorker(uid types.UID) bool { return p.k.hasWorker(uid) }

// VolumeUsage returns how much a pod's volumes use.
func (p podWorkers) VolumeUsage(ctx context.Context, uid types.UID) ([]volume.Usage, error) {
	return p.k.Usage(ctx, uid)
}

// RemoveOrphan starts a worker that removes what is left of a pod that the API does not know.
func (p podWorkers) RemoveOrphan(uid types.UID) { p.k.worker(uid, nil) }

// Running returns a pod that is neither terminating nor finished, nil if it is or there is no such pod.
func (p podWorkers) Running(uid types.UID) *corev1.Pod {
	p.k.mu.Lock()
	w := p.k.workers[uid]
	p.k.mu.Unlock()
	if w == nil {
		return nil
	}
	pod, deleted := w.latest()
	if pod == nil || deleted || pod.DeletionTimestamp != nil || status.IsTerminal(pod.Status.Phase) || w.isCleanupDone() {
		return nil
	}
	return pod
}

// Evict has a pod fail because of the node, and waits for it to end. On a full disk the Event is recorded after that: before, it could not be stored.
func (p podWorkers) Evict(ctx context.Context, uid types.UID, message string, diskFull bool) {
	k := p.k
	k.mu.Lock()
	w := k.workers[uid]
	k.mu.Unlock()
	if w == nil {
		return
	}
	k.log.Info("evicting a pod", "uid", uid, "why", message)
	w.mu.Lock()
	pod := w.pod
	w.evictionFailure, w.diskFull = &status.Failure{Reason: eviction.Reason, Message: message}, diskFull
	w.interruptLocked()
	w.mu.Unlock()
	if diskFull {
		defer k.recorder.Event(pod, corev1.EventTypeWarning, eviction.Reason, message)
	} else {
		k.recorder.Event(pod, corev1.EventTypeWarning, eviction.Reason, message)
	}
	w.wake()
	inner, cancel := context.WithTimeout(ctx, evictionTimeout)
	defer cancel()
	for inner.Err() == nil && !w.isCleanupDone() {
		sleep(inner, 50*time.Millisecond)
	}
}

// checkEvicted has a pod fail that was evicted.
func (w *worker) checkEvicted() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.evictionFailure != nil && w.podFailure == nil {
		w.podFailure, w.disruptionTarget = w.evictionFailure, true
	}
}

func (w *worker) isCleanupDone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cleanupDone
}

// makeRoom frees space on a full disk before the pod's containers are stopped, which the runtime could not store: it kills the pod's processes, so that
// nothing of it writes any more, and removes the ballast file and the pod's volumes.
func (w *worker) makeRoom(ctx context.Context) error {
	if err := w.k.options.Cgroups.Remove(w.uid); err != nil {
		return err
	}
	w.k.housekeeping.RemoveBallast()
	return w.k.options.Volumes.TearDown(ctx, w.uid)
}

func (w *worker) isDiskFull() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.diskFull
}
