package kubelet

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/status"
)

// worker runs one pod, from the moment the node learns of it until nothing of it is left.
type worker struct {
	k      *Kubelet
	uid    types.UID
	signal chan struct{} // has a value when the pod is to be synced

	mu                 sync.Mutex
	pod                *corev1.Pod        // the pod as the API had it last; nil if the API does not know the pod
	podDeleted         bool               // the API does not have the pod any more
	interrupt          context.CancelFunc // cancels the step that is being done, if it can be
	firstSeen          time.Time          // when this process first saw the pod
	admitted           bool               // the pod passed admission
	startMeasured      bool               // the duration of the pod's start was observed, or the pod was started by another process
	everReady          bool               // the pod was ready at least once
	lastStartAt        time.Time          // when the last of the pod's containers was started
	firstProbedStartAt time.Time          // when the first container was started that is not ready before a probe says so
	evictionFailure    *status.Failure    // why the pod is evicted, nil if it is not
	diskFull           bool               // the pod is evicted because the disk is full
	cleanupDone        bool               // the pod has terminated, and its volumes, cgroup and ports were released
	excluded           timeSpan           // the part of the pod's start that the start SLI leaves out
	allocation         *allocation        // the resources that the node has granted the pod

	// The fields below belong to the worker's goroutine.
	podFailure       *status.Failure                                // why the pod fails, nil if it does not
	disruptionTarget bool                                           // the pod was evicted: its status gets the DisruptionTarget condition
	resizePending    *corev1.PodCondition                           // why a resize was not granted, nil if none is pending
	resizeGeneration *int64                                         // the generation whose resources containers are being given, nil if no resize is in progress
	resizeError      string                                         // why the resize in progress failed last
	updatedResources map[string]*runtimeapi.LinuxContainerResources // what containers were given since they were created, by container id
	startFailures    map[string]status.Failure                      // why containers could not be started, by name
	containerStops   map[string]*containerStop                      // the stops that were begun, by container id
	mountedAt        time.Time                                      // when volumes were last set up; zero if they were not
	unmountedSince   time.Time                                      // since when volumes cannot be set up, or when an Event last said so
	mountedPod       *corev1.Pod                                    // the pod that volumes were last set up for
	hostPortsSet     bool                                           // the pod's host ports lead to it
	lastPodIPs       []string                                       // the pod's IPs, which the runtime forgets when the sandbox is stopped
	podTerminated    bool                                           // no container runs or will run, and cleanup is done
	runtimeCleaned   bool                                           // the runtime has no container or sandbox of the pod any more
	retries          int                                            // how many syncs in a row have failed
	pickupReported   bool                                           // the pickup stage was reported
}

// podChanged handles a pod that was added or updated in the API.
func (k *Kubelet) podChanged(pod *corev1.Pod) {
	w, created := k.worker(pod.UID, pod)
	if w == nil || created {
		return
	}
	k.writer.Observe(pod)
	if w.update(pod, false) {
		w.wake()
	}
}

// podRemoved handles a pod that was removed from the API: its worker terminates it.
func (k *Kubelet) podRemoved(pod *corev1.Pod) {
	if w, _ := k.worker(pod.UID, pod); w != nil {
		w.update(pod, true)
		w.wake()
	}
}

// worker returns the worker of a pod, and starts one if there is none; created reports whether it did. pod is nil if the API does not know the pod. The
// worker is nil when the kubelet is stopping.
func (k *Kubelet) worker(uid types.UID, pod *corev1.Pod) (w *worker, created bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w = k.workers[uid]; w == nil && !k.stopping {
		created = true
		w = &worker{pod: pod, k: k, uid: uid, signal: make(chan struct{}, 1), firstSeen: time.Now(), startFailures: map[string]status.Failure{},
			containerStops: map[string]*containerStop{}, updatedResources: map[string]*runtimeapi.LinuxContainerResources{}}
		w.startMeasured = pod != nil && pod.Status.StartTime != nil // another process started it
		w.everReady = pod != nil && isReady(&pod.Status)
		k.workers[uid] = w
		k.workerGroup.Go(w.run)
	}
	return w, created
}

// wake has a pod's worker sync the pod, if it has one.
func (k *Kubelet) wake(uid types.UID) {
	k.mu.Lock()
	w := k.workers[uid]
	k.mu.Unlock()
	if w != nil {
		w.wake()
	}
}

// wake has the worker sync the pod.
func (w *worker) wake() {
	select {
	case w.signal <- struct{}{}:
	default: // a sync is due already
	}
}

// update takes a new version of the pod, and reports whether the change calls for a sync. A pod that is to terminate sooner than before interrupts what the
// worker is doing.
func (w *worker) update(pod *corev1.Pod, deleted bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, wasDeleted := w.pod, w.podDeleted
	w.pod, w.podDeleted = pod, w.podDeleted || deleted
	if before == nil || w.podDeleted != wasDeleted {
		w.interruptLocked()
		return true
	}
	if pod.DeletionTimestamp != nil && (before.DeletionTimestamp == nil || *pod.DeletionGracePeriodSeconds < *before.DeletionGracePeriodSeconds) {
		w.interruptLocked()
		return true
	}
	return pod.Generation != before.Generation || !equality.Semantic.DeepEqual(pod.ObjectMeta.Labels, before.ObjectMeta.Labels) ||
		!equality.Semantic.DeepEqual(pod.Annotations, before.Annotations) || status.IsTerminal(pod.Status.Phase) && !status.IsTerminal(before.Status.Phase) ||
		len(pod.Spec.ReadinessGates) > 0 && !equality.Semantic.DeepEqual(pod.Status.Conditions, before.Status.Conditions)
}

// interruptLocked interrupts what the worker is doing, if it can be. The worker is locked.
func (w *worker) interruptLocked() {
	if w.interrupt != nil {
		w.interrupt()
	}
}

// latest returns the pod as the API had it last, and whether the API does not have it any more.
func (w *worker) latest() (pod *corev1.Pod, deleted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pod, w.podDeleted
}

// interruptible returns a context that is canceled when the kubelet stops, or when the pod is to terminate sooner than before. Unless terminating is set, that
// is so from the beginning for a pod that is being deleted.
func (w *worker) interruptible(ctx context.Context, terminating bool) (context.Context, context.CancelFunc) {
	ctx, cancelCtx := context.WithCancel(ctx)
	stop := context.AfterFunc(w.k.runCtx, cancelCtx)
	cancel := func() { stop(); cancelCtx() }
	w.mu.Lock()
	defer w.mu.Unlock()
	w.interrupt = cancel
	if !terminating && (w.podDeleted || w.pod != nil && w.pod.DeletionTimestamp != nil) {
		cancel()
	}
	return ctx, cancel
}

// How long a worker waits before it syncs again after an error; the wait doubles each time.
const (
	minRetry = 200 * time.Millisecond
	maxRetry = 10 * time.Second
)

// run syncs the pod whenever it is woken or a requeue is due, until nothing of the pod is left.
func (w *worker) run() {
	ctx, cancel := context.WithCancel(w.k.callCtx)
	defer cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-w.k.runCtx.Done():
			return
		case <-w.signal:
		case <-timer.C:
		}
		requeueAt, done := w.syncWithBackOff(ctx)
		if done {
			w.forget()
			return
		}
		if requeueAt.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(max(time.Until(requeueAt), 0))
		}
	}
}

// syncWithBackOff calls sync, and backs off after errors.
func (w *worker) syncWithBackOff(ctx context.Context) (requeueAt time.Time, done bool) {
	requeueAt, done, err := w.sync(ctx)
	if err == nil {
		w.retries = 0
		return requeueAt, done
	}
	pod, _ := w.latest()
	if pod != nil {
		w.k.log.Debug("failed to sync a pod; retrying", "pod", podName(pod), "error", err)
	}
	retry := time.Now().Add(min(minRetry<<min(w.retries, 10), maxRetry))
	w.retries++
	if requeueAt.IsZero() || retry.Before(requeueAt) {
		requeueAt = retry
	}
	return requeueAt, false
}

// forget drops all that is remembered of the pod: nothing of it is left.
func (w *worker) forget() {
	k := w.k
	k.probes.Forget(w.uid)
	k.writer.Forget(w.uid)
	k.images.Forget(w.uid)
	k.backOffs.forget(w.uid)
	k.observer.Forget(w.uid)
	k.objects.certificates.Forget(w.uid)
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.workers, w.uid)
}
