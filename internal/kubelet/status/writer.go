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
	// Written is told of every status that reached the API, with the pod as the API has it now, and when it was decided.
	Written func(pod *corev1.Pod, decided time.Time)
	// Changed is told of every status that says something new, and of the one before. It must not block.
	Changed func(before, now *corev1.PodStatus)
}

// Writer reports statuses. It keeps the last one of each pod until it is told to forget the pod, and tries again until the API has it.
type Writer struct {
	options Options
	queue   workqueue.TypedRateLimitingInterface[types.UID]

	mu   sync.Mutex
	pods map[types.UID]*entry
}

// entry is what is to be said about a pod, and what has been.
type entry struct {
	pod      *corev1.Pod // the newest version that was seen
	want     *corev1.PodStatus
	decided  time.Time // when the oldest status that is not written yet, and should be, was
	waits    bool      // for the next one
	runs     bool      // something of it may be running
	finished bool      // nothing of it is left on the node
	version  uint64    // of want; counts up
	written  uint64    // the version that the API has
}

// How many statuses are written at the same time.
const writers = 4

// NewWriter makes a writer. Nothing is written before Run.
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
					w.options.Log.Warn("a pod's status could not be reported; trying again", "uid", uid, "error", err)
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

// Set says what a pod's status is from now on, and whether something of the pod may be running. A status that says nothing new is not written.
func (w *Writer) Set(pod *corev1.Pod, s *corev1.PodStatus, runs bool) {
	w.set(pod, s, runs, false, 0)
}

// soon is how long a status waits for the next one, which it is written with.
const soon = time.Second

// SetSoon is Set for a status that most likely is followed by another right away: that one is written with it.
func (w *Writer) SetSoon(pod *corev1.Pod, s *corev1.PodStatus, runs bool) {
	w.set(pod, s, runs, false, soon)
}

// Finish says what a pod's last status is: nothing of the pod is left on the node. If the pod is being deleted, or when it will be, it is
// deleted for good.
func (w *Writer) Finish(pod *corev1.Pod, s *corev1.PodStatus) { w.set(pod, s, false, true, 0) }

func (w *Writer) set(pod *corev1.Pod, s *corev1.PodStatus, runs, finished bool, after time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entry(pod)
	if e.want != nil && equal(e.want, s) && e.runs == runs && e.finished == finished {
		return
	}
	if e.want == nil && !finished && equal(&e.pod.Status, s) { // it was reported before this process
		e.want, e.runs = s, runs
		return
	}
	before := e.want
	if before == nil {
		before = &e.pod.Status
	}
	w.options.Changed(before, s)
	e.want, e.runs, e.finished = s, runs, e.finished || finished
	if e.version == e.written || e.waits {
		e.decided = time.Now()
	}
	e.waits = after > 0
	e.version++
	w.queue.AddAfter(pod.UID, after)
}

func (w *Writer) entry(pod *corev1.Pod) *entry {
	e := w.pods[pod.UID]
	if e == nil {
		e = &entry{pod: pod}
		w.pods[pod.UID] = e
	}
	e.see(pod)
	return e
}

// see keeps the newer version of a pod.
func (e *entry) see(pod *corev1.Pod) {
	if revision(pod) > revision(e.pod) {
		e.pod = pod
	}
}

func revision(pod *corev1.Pod) uint64 {
	n, _ := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	return n
}

// Get is the status that was set last.
func (w *Writer) Get(uid types.UID) (*corev1.PodStatus, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.pods[uid]
	if e == nil || e.want == nil {
		return nil, false
	}
	return e.want, true
}

// See tells the writer of a pod as the API has it. If somebody else changed what is ours, it is put right; if the pod is finished and now being
// deleted, it is deleted for good.
func (w *Writer) See(pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.pods[pod.UID]
	if e == nil {
		return
	}
	e.see(pod)
	if e.want == nil || e.version != e.written || e.pod != pod {
		return // the write that is under way will see it
	}
	if !equal(merge(pod, e.want, e.runs), &pod.Status) || e.finished && pod.DeletionTimestamp != nil {
		e.version++
		w.queue.Add(pod.UID)
	}
}

// Forget forgets a pod.
func (w *Writer) Forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pods, uid)
}

func (w *Writer) write(ctx context.Context, uid types.UID) error {
	w.mu.Lock()
	e := w.pods[uid]
	if e == nil || e.want == nil {
		w.mu.Unlock()
		return nil
	}
	pod, want, version, decided, finished := e.pod, merge(e.pod, e.want, e.runs), e.version, e.decided, e.finished
	w.mu.Unlock()

	ctx = client.Because(ctx, pod)
	if patch, err := patchOf(pod, want); err != nil {
		return err
	} else if patch != nil {
		now, err := w.options.Client.Kubernetes().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
			metav1.PatchOptions{}, "status")
		switch {
		case apierrors.IsNotFound(err) || apierrors.IsConflict(err): // it is gone, or another one of that name is there
			w.refresh(ctx, pod)
			return err2nil(err, apierrors.IsNotFound)
		case err != nil:
			w.refresh(ctx, pod)
			return err
		}
		pod = now
		w.options.Written(pod, decided)
	}
	w.mu.Lock()
	if e.see(pod); version > e.written {
		e.written = version
	}
	w.mu.Unlock()
	if finished && pod.DeletionTimestamp != nil && Ended(pod.Status.Phase) {
		return w.remove(ctx, pod)
	}
	return nil
}

// refresh looks at a pod again after a write failed: what the patch was made from may be outdated.
func (w *Writer) refresh(ctx context.Context, pod *corev1.Pod) {
	now, err := w.options.Client.Kubernetes().CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err == nil && now.UID == pod.UID {
		w.mu.Lock()
		defer w.mu.Unlock()
		if e := w.pods[pod.UID]; e != nil {
			e.see(now)
		}
	} else if err == nil || apierrors.IsNotFound(err) {
		w.Forget(pod.UID)
	}
}

func err2nil(err error, is func(error) bool) error {
	if is(err) {
		return nil
	}
	return err
}

// remove deletes a pod for good.
func (w *Writer) remove(ctx context.Context, pod *corev1.Pod) error {
	var now int64
	err := w.options.Client.Kubernetes().CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name,
		metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// patchOf is what makes a pod's status another one; nil if it is that already. It holds only for the very pod, not another of its name.
func patchOf(pod *corev1.Pod, want *corev1.PodStatus) ([]byte, error) {
	before, err := json.Marshal(corev1.Pod{Status: *pod.Status.DeepCopy()})
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(corev1.Pod{Status: *want})
	if err != nil {
		return nil, err
	}
	if string(before) == string(after) {
		return nil, nil
	}
	after, err = json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: pod.UID}, Status: *want})
	if err != nil {
		return nil, err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("working out what changed of the status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return patch, nil
}
