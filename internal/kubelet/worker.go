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

// worker sees to one pod, from the moment the node learns of it until nothing of it is left.
type worker struct {
	k      *Kubelet
	uid    types.UID
	signal chan struct{} // something has changed

	mu        sync.Mutex
	pod       *corev1.Pod        // as the API had it last; nil if the API does not know it
	gone      bool               // the API has it no more
	interrupt context.CancelFunc // breaks off what would not be begun now
	seen      time.Time          // when it was first seen
	admitted  bool               // the node has taken it
	started   bool               // its start is over, and has been measured
	wasReady  bool               // once
	launched  time.Time          // when the last of its containers was started
	probed    time.Time          // when the first was that probes have to find ready
	evicted   *status.Failure    // why it has to go
	full      bool               // that is because the disk is full
	cleaned   bool               // nothing of it runs or will run, and what it had of the node is given back
	excuse    excuse

	allocation *allocation // what of its resources the node has agreed to

	// What follows belongs to the worker's own goroutine.
	failed      *status.Failure      // why it has to end
	pending     *corev1.PodCondition // why it does not have the resources that it asks for
	resizing    *int64               // the generation whose resources its containers are being given
	resizeError string
	updated     map[string]*runtimeapi.LinuxContainerResources // what its containers have been given since they were made, by id
	disrupted   bool                                           // that is because the node has to do without it
	failures    map[string]status.Failure                      // of containers that could not be started
	stops       map[string]*stop                               // of containers, by id
	mounted     time.Time                                      // when its volumes were made or brought up to date
	shown       *corev1.Pod                                    // the pod as its volumes show it
	ported      bool                                           // its host ports lead to it
	ips         []string                                       // its addresses, which the runtime forgets when it is stopped
	finished    bool                                           // nothing of it runs or will run, and it is cleaned up
	removed     bool                                           // nor is anything left in the runtime
	retries     int                                            // how often in a row something went wrong
	hasPickup   bool
}

// podChanged takes a pod as the API has it now.
func (k *Kubelet) podChanged(pod *corev1.Pod) {
	w, fresh := k.worker(pod.UID, pod)
	if w == nil || fresh {
		return
	}
	k.writer.See(pod)
	if w.update(pod, false) {
		w.wake()
	}
}

// podGone ends a pod that the API has no more.
func (k *Kubelet) podGone(pod *corev1.Pod) {
	if w, _ := k.worker(pod.UID, pod); w != nil {
		w.update(pod, true)
		w.wake()
	}
}

// worker is the worker of a pod, which is made if there is none. A pod that the API does not know is nil. It is nil when the kubelet is ending.
func (k *Kubelet) worker(uid types.UID, pod *corev1.Pod) (w *worker, fresh bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w = k.workers[uid]; w == nil && !k.ended {
		fresh = true
		w = &worker{pod: pod, k: k, uid: uid, signal: make(chan struct{}, 1), failures: map[string]status.Failure{}, stops: map[string]*stop{}, updated: map[string]*runtimeapi.LinuxContainerResources{}, seen: time.Now()}
		w.started = pod != nil && pod.Status.StartTime != nil // by another process
		w.wasReady = pod != nil && isReady(&pod.Status)
		k.workers[uid] = w
		k.working.Go(w.run)
	}
	return w, fresh
}

// wake has a pod's worker look at it again, if it has one.
func (k *Kubelet) wake(uid types.UID) {
	k.mu.Lock()
	w := k.workers[uid]
	k.mu.Unlock()
	if w != nil {
		w.wake()
	}
}

func (w *worker) wake() {
	select {
	case w.signal <- struct{}{}:
	default: // it will look anyway
	}
}

// update takes a version of the pod. It says whether that is worth looking at.
func (w *worker) update(pod *corev1.Pod, gone bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, wasGone := w.pod, w.gone
	w.pod, w.gone = pod, w.gone || gone
	if before == nil || w.gone != wasGone {
		w.breakOff()
		return true
	}
	if pod.DeletionTimestamp != nil && (before.DeletionTimestamp == nil || *pod.DeletionGracePeriodSeconds < *before.DeletionGracePeriodSeconds) {
		w.breakOff()
		return true
	}
	return pod.Generation != before.Generation || !equality.Semantic.DeepEqual(pod.ObjectMeta.Labels, before.ObjectMeta.Labels) ||
		!equality.Semantic.DeepEqual(pod.Annotations, before.Annotations) || status.Ended(pod.Status.Phase) && !status.Ended(before.Status.Phase) ||
		len(pod.Spec.ReadinessGates) > 0 && !equality.Semantic.DeepEqual(pod.Status.Conditions, before.Status.Conditions)
}

func (w *worker) breakOff() {
	if w.interrupt != nil {
		w.interrupt()
	}
}

func (w *worker) latest() (pod *corev1.Pod, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pod, w.gone
}

// interruptible is a context that ends when the kubelet does, or when the pod is to be ended sooner than it was.
func (w *worker) interruptible(ctx context.Context, deleting bool) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancel(ctx)
	stop := context.AfterFunc(w.k.running, end)
	cancel := func() { stop(); end() }
	w.mu.Lock()
	defer w.mu.Unlock()
	w.interrupt = cancel
	if !deleting && (w.gone || w.pod != nil && w.pod.DeletionTimestamp != nil) {
		cancel()
	}
	return ctx, cancel
}

// How long a worker waits before it looks again: after trouble, longer each time.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// run looks at the pod again and again until nothing of it is left.
func (w *worker) run() {
	ctx, cancel := context.WithCancel(w.k.calls)
	defer cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-w.k.running.Done():
			return
		case <-w.signal:
		case <-timer.C:
		}
		again, done := w.look(ctx)
		if done {
			w.forget()
			return
		}
		if again.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(max(time.Until(again), 0))
		}
	}
}

// look is sync, with a pause after trouble.
func (w *worker) look(ctx context.Context) (again time.Time, done bool) {
	again, done, err := w.sync(ctx)
	if err == nil {
		w.retries = 0
		return again, done
	}
	pod, _ := w.latest()
	if pod != nil {
		w.k.log.Debug("a pod could not be brought to where it should be; trying again", "pod", podName(pod), "error", err)
	}
	retry := time.Now().Add(min(firstRetry<<min(w.retries, 10), lastRetry))
	w.retries++
	if again.IsZero() || retry.Before(again) {
		again = retry
	}
	return again, false
}

// forget forgets the pod: nothing of it is left.
func (w *worker) forget() {
	k := w.k
	k.probes.Forget(w.uid)
	k.writer.Forget(w.uid)
	k.images.Forget(w.uid)
	k.backOffs.forget(w.uid)
	k.observer.Forget(w.uid)
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.workers, w.uid)
}
