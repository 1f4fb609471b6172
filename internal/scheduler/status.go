package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"skiff/internal/client"
)

const (
	statusWriters = 4 // how many pod statuses are written at a time
	statusTries   = 5 // how often a write is tried for a pod that changes meanwhile
)

// statuses holds changes of pods' statuses to be written in the background. For each pod only the last one counts, so there are never more of them than
// pods.
type statuses struct {
	mu      sync.Mutex
	cond    *sync.Cond // signalled when there is something to write, or it was written
	changes map[types.UID]statusChange
	order   []types.UID
	writing map[types.UID]struct{}
	closed  bool
}

// statusChange is a condition to set on a pod, and its nominated node, if that changes.
type statusChange struct {
	pod       *corev1.Pod
	condition *corev1.PodCondition
	nominated *string
}

func newStatuses() *statuses {
	s := &statuses{changes: map[types.UID]statusChange{}, writing: map[types.UID]struct{}{}}
	s.cond = sync.NewCond(&s.mu)
	return s
}

// put queues a change.
func (s *statuses) put(c statusChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, waits := s.changes[c.pod.UID]
	if waits && c.nominated == nil {
		c.nominated = before.nominated
	}
	if !waits {
		s.order = append(s.order, c.pod.UID)
	}
	s.changes[c.pod.UID] = c
	s.cond.Broadcast()
}

// cancel drops a pod's queued change, and waits for one that is being written: it would be outdated.
func (s *statuses) cancel(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.changes, uid)
	for {
		if _, busy := s.writing[uid]; !busy {
			return
		}
		s.cond.Wait()
	}
}

// next waits for the next change. It returns false when the queue is closed.
func (s *statuses) next() (statusChange, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for i := 0; i < len(s.order) && !s.closed; i++ {
			uid := s.order[i]
			c, ok := s.changes[uid]
			if _, busy := s.writing[uid]; busy && ok {
				continue // writes of one pod follow each other
			}
			if i == 0 {
				s.order = s.order[1:]
			} else {
				s.order = slices.Delete(s.order, i, i+1)
			}
			if i--; !ok {
				continue // cancelled
			}
			delete(s.changes, uid)
			s.writing[uid] = struct{}{}
			return c, true
		}
		if s.closed {
			return statusChange{}, false
		}
		s.cond.Wait()
	}
}

func (s *statuses) done(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.writing, uid)
	s.cond.Broadcast()
}

func (s *statuses) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.cond.Broadcast()
}

// writeStatuses writes changes until the queue is closed.
func (s *Scheduler) writeStatuses(ctx context.Context) {
	for {
		c, ok := s.statuses.next()
		if !ok {
			return
		}
		if err := s.writeStatus(client.Because(ctx, c.pod), c); ignoreGone(err) != nil && ctx.Err() == nil {
			s.log.Warn("failed to write pod status", "pod", c.pod.Namespace+"/"+c.pod.Name, "error", err)
		}
		s.statuses.done(c.pod.UID)
	}
}

// writeStatus writes a change to a pod, only if it is still pending: another scheduler may have bound it.
func (s *Scheduler) writeStatus(ctx context.Context, c statusChange) error {
	for range statusTries {
		err := s.patchStatus(ctx, c.pod, c.condition, c.nominated, true)
		if !apierrors.IsConflict(err) {
			return err
		}
		now, err := s.api.CoreV1().Pods(c.pod.Namespace).Get(ctx, c.pod.Name, metav1.GetOptions{})
		if err != nil || now.UID != c.pod.UID || now.Spec.NodeName != "" {
			return err
		}
		c.pod = now
	}
	return errors.New("the pod changed before every attempt to write its status")
}

// patchStatus sets a condition of a pod, if it is not nil, and its nominated node, if that is not nil and has changed. With thisVersion it does so only
// if the pod has not changed.
func (s *Scheduler) patchStatus(ctx context.Context, pod *corev1.Pod, condition *corev1.PodCondition, nominated *string, thisVersion bool) error {
	meta, status := map[string]any{"uid": pod.UID}, map[string]any{}
	if thisVersion {
		meta["resourceVersion"] = pod.ResourceVersion
	}
	if condition != nil {
		if changed, ok := changedCondition(&pod.Status, *condition); ok {
			status["conditions"] = []corev1.PodCondition{changed}
		}
	}
	if nominated != nil && *nominated != pod.Status.NominatedNodeName {
		status["nominatedNodeName"] = nominated
		if *nominated == "" {
			status["nominatedNodeName"] = nil
		}
	}
	if len(status) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": meta, "status": status})
	if err != nil {
		return err
	}
	return retry.OnError(retry.DefaultBackoff, retriable, func() error {
		_, err := s.api.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	})
}

// changedCondition returns a condition as it is to be written, and whether it differs from the pod's.
func changedCondition(status *corev1.PodStatus, c corev1.PodCondition) (corev1.PodCondition, bool) {
	c.LastTransitionTime = metav1.Time{Time: time.Now()}
	for i := range status.Conditions {
		old := &status.Conditions[i]
		if old.Type != c.Type {
			continue
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
			return c, old.Reason != c.Reason || old.Message != c.Message
		}
	}
	return c, true
}

// retriable reports whether an error is worth a retry: one of an API server that is not well, not a refusal.
func retriable(err error) bool {
	return apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) || errors.Is(err, syscall.ECONNREFUSED)
}
