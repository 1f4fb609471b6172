package status

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/util/workqueue"

	"skiff/internal/client"
)

// Options of a writer.
type Options struct {
	Client *client.Client
	Log    *slog.Logger
	// Written is called for every status that was written, with the pod as the API returned it and when the status changed.
	Written func(pod *corev1.Pod, changedAt time.Time)
	// Changed is called with every status that differs from the one before, and with that one. It must not block.
	Changed func(before, now *corev1.PodStatus)
}

// Writer writes statuses to the API. It keeps the last status of each pod until Forget, and retries until the API has it.
type Writer struct {
	options Options
	queue   workqueue.TypedRateLimitingInterface[types.UID]

	mu   sync.Mutex
	pods map[types.UID]*entry
}

// entry is the status of a pod, and what of it was written.
type entry struct {
	pod       *corev1.Pod       // the newest observed version of the pod
	status    *corev1.PodStatus // the status that was set last, nil if none was
	changedAt time.Time         // when the oldest change that is not written yet was set
	delayed   bool              // the last status was set by SetSoon
	mayRun    bool              // a container of the pod may be running
	finished  bool              // nothing of the pod is left on the node
	version   uint64            // counts the changes of status
	written   uint64            // the version that the API has
}

// writers is how many statuses are written in parallel.
const writers = 4

// NewWriter returns a writer. Nothing is written before Run.
func NewWriter(o Options) *Writer {
	if o.Written == nil {
		o.Written = func(*corev1.Pod, time.Time) {}
	}
	if o.Changed == nil {
		o.Changed = func(_, _ *corev1.PodStatus) {}
	}
	limit := workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](50*time.Millisecond, 10*time.Second)
	return &Writer{options: o, queue: workqueue.NewTypedRateLimitingQueue(limit), pods: map[types.UID]*entry{}}
}

// Run writes statuses until ctx ends.
func (w *Writer) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer w.queue.ShutDown()
	for range writers {
		wg.Go(func() {
			for {
				uid, down := w.queue.Get()
				if down {
					return
				}
				if err := w.write(ctx, uid); err != nil && ctx.Err() == nil {
					w.options.Log.Warn("failed to write a pod's status; retrying", "uid", uid, "error", err)
					w.queue.AddRateLimited(uid)
				} else {
					w.queue.Forget(uid)
				}
				w.queue.Done(uid)
			}
		})
	}
	<-ctx.Done()
}

// Set sets a pod's status. mayRun says that a container of the pod may be running: a terminal phase is not written then. An unchanged status is not written.
func (w *Writer) Set(pod *corev1.Pod, s *corev1.PodStatus, mayRun bool) {
	w.set(pod, s, mayRun, false, 0)
}

// setSoonDelay is how long SetSoon waits for another status before it writes.
const setSoonDelay = time.Second

// SetSoon is Set for a status that is most likely followed by another one right away: both are written at once.
func (w *Writer) SetSoon(pod *corev1.Pod, s *corev1.PodStatus, mayRun bool) {
	w.set(pod, s, mayRun, false, setSoonDelay)
}

// Finish sets a pod's last status: nothing of the pod is left on the node. Once the pod is being deleted, it is removed from the API.
func (w *Writer) Finish(pod *corev1.Pod, s *corev1.PodStatus) { w.set(pod, s, false, true, 0) }

func (w *Writer) set(pod *corev1.Pod, s *corev1.PodStatus, mayRun, finished bool, delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entry(pod)
	if e.status != nil && equal(e.status, s) && e.mayRun == mayRun && e.finished == finished {
		return
	}
	if e.status == nil && !finished && equal(&e.pod.Status, s) { // an earlier process has written it
		e.status, e.mayRun = s, mayRun
		return
	}
	before := e.status
	if before == nil {
		before = &e.pod.Status
	}
	w.options.Changed(before, s)
	e.status, e.mayRun, e.finished = s, mayRun, e.finished || finished
	if e.version == e.written || e.delayed {
		e.changedAt = time.Now()
	}
	e.delayed = delay > 0
	e.version++
	w.queue.AddAfter(pod.UID, delay)
}

// entry returns the entry of a pod, and creates one if there is none.
func (w *Writer) entry(pod *corev1.Pod) *entry {
	e := w.pods[pod.UID]
	if e == nil {
		e = &entry{pod: pod}
		w.pods[pod.UID] = e
	}
	e.observe(pod)
	return e
}

// observe keeps the newer version of the pod.
func (e *entry) observe(pod *corev1.Pod) {
	if revision(pod) > revision(e.pod) {
		e.pod = pod
	}
}

func revision(pod *corev1.Pod) uint64 {
	n, _ := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	return n
}

// Get returns the status of a pod that was set last.
func (w *Writer) Get(uid types.UID) (*corev1.PodStatus, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.pods[uid]
	if e == nil || e.status == nil {
		return nil, false
	}
	return e.status, true
}

// Observe takes a pod as the API has it. If somebody else changed the kubelet's part of its status, that is written again; if the pod is finished and being
// deleted, it is removed from the API.
func (w *Writer) Observe(pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.pods[pod.UID]
	if e == nil {
		return
	}
	e.observe(pod)
	if e.status == nil || e.version != e.written || e.pod != pod {
		return // the write in flight uses it
	}
	if !equal(merge(pod, e.status, e.mayRun), &pod.Status) || e.finished && pod.DeletionTimestamp != nil {
		e.version++
		w.queue.Add(pod.UID)
	}
}

// Forget drops the status of a pod.
func (w *Writer) Forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pods, uid)
}

// write writes a pod's status, and removes the pod from the API if it is finished and being deleted.
func (w *Writer) write(ctx context.Context, uid types.UID) error {
	w.mu.Lock()
	e := w.pods[uid]
	if e == nil || e.status == nil {
		w.mu.Unlock()
		return nil
	}
	pod, status, version, changedAt, finished := e.pod, merge(e.pod, e.status, e.mayRun), e.version, e.changedAt, e.finished
	w.mu.Unlock()

	ctx = client.Because(ctx, pod)
	if patch, err := patchOf(pod, status); err != nil {
		return err
	} else if patch != nil {
		updated, err := w.options.Client.Kubernetes().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
			metav1.PatchOptions{}, "status")
		switch {
		case apierrors.IsNotFound(err) || apierrors.IsConflict(err): // the pod was deleted, or replaced by another one of its name
			w.refresh(ctx, pod)
			return ignoreIf(err, apierrors.IsNotFound)
		case err != nil:
			w.refresh(ctx, pod)
			return err
		}
		pod = updated
		w.options.Written(pod, changedAt)
	}
	w.mu.Lock()
	if e.observe(pod); version > e.written {
		e.written = version
	}
	w.mu.Unlock()
	if finished && pod.DeletionTimestamp != nil && IsTerminal(pod.Status.Phase) {
		return w.remove(ctx, pod)
	}
	return nil
}

// refresh gets a pod again after a write failed: the version that the patch was computed from may be outdated.
func (w *Writer) refresh(ctx context.Context, pod *corev1.Pod) {
	now, err := w.options.Client.Kubernetes().CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err == nil && now.UID == pod.UID {
		w.mu.Lock()
		defer w.mu.Unlock()
		if e := w.pods[pod.UID]; e != nil {
			e.observe(now)
		}
	} else if err == nil || apierrors.IsNotFound(err) {
		w.Forget(pod.UID)
	}
}

// ignoreIf returns nil for errors that is accepts.
func ignoreIf(err error, is func(error) bool) error {
	if is(err) {
		return nil
	}
	return err
}

// remove deletes a pod without a grace period, which removes it from the API.
func (w *Writer) remove(ctx context.Context, pod *corev1.Pod) error {
	var now int64
	err := w.options.Client.Kubernetes().CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name,
		metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// patchOf returns the patch that gives a pod a status, nil if it has that status. It has the pod's UID, so that it fails for another pod of the same name.
func patchOf(pod *corev1.Pod, status *corev1.PodStatus) ([]byte, error) {
	before, err := json.Marshal(corev1.Pod{Status: *pod.Status.DeepCopy()})
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(corev1.Pod{Status: *status})
	if err != nil {
		return nil, err
	}
	if string(before) == string(after) {
		return nil, nil
	}
	after, err = json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: pod.UID}, Status: *status})
	if err != nil {
		return nil, err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("failed to compute the status patch of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return patch, nil
}
