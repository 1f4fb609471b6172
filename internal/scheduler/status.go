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
	statusWriters = 4 // pods whose statuses are written at a time
	statusTries   = 5 // for a pod that changes meanwhile
)

// statuses are changes of pods' statuses that are to be written, behind the scheduler's back. For one pod only the last one counts, so there
// are never more of them than pods.
type statuses struct {
	mu      sync.Mutex
	some    *sync.Cond // something is to be done, or was
	changes map[types.UID]statusChange
	order   []types.UID
	writing map[types.UID]struct{}
	closed  bool
}

// statusChange is a condition that a pod gets, and the node that it waits for room on, if that changes.
type statusChange struct {
	pod       *corev1.Pod
	condition *corev1.PodCondition
	nominated *string
}

func newStatuses() *statuses {
	s := &statuses{changes: map[types.UID]statusChange{}, writing: map[types.UID]struct{}{}}
	s.some = sync.NewCond(&s.mu)
	return s
}

// put has a change written.
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
	s.some.Broadcast()
}

// settle makes sure that nothing is written about a pod from now on that was put before: it would say what does not hold any more.
func (s *statuses) settle(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.changes, uid)
	for {
		if _, busy := s.writing[uid]; !busy {
			return
		}
		s.some.Wait()
	}
}

// next waits for the next change. false: there are to be no more.
func (s *statuses) next() (statusChange, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for i := 0; i < len(s.order) && !s.closed; i++ {
			uid := s.order[i]
			c, ok := s.changes[uid]
			if _, busy := s.writing[uid]; busy && ok {
				continue // one after the other
			}
			if i == 0 {
				s.order = s.order[1:]
			} else {
				s.order = slices.Delete(s.order, i, i+1)
			}
			if i--; !ok {
				continue // settled
			}
			delete(s.changes, uid)
			s.writing[uid] = struct{}{}
			return c, true
		}
		if s.closed {
			return statusChange{}, false
		}
		s.some.Wait()
	}
}

func (s *statuses) done(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.writing, uid)
	s.some.Broadcast()
}

func (s *statuses) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.some.Broadcast()
}

// writeStatuses writes changes until there are to be no more.
func (s *Scheduler) writeStatuses(ctx context.Context) {
	for {
		c, ok := s.statuses.next()
		if !ok {
			return
		}
		if err := s.writeStatus(client.Because(ctx, c.pod), c); ignoreGone(err) != nil && ctx.Err() == nil {
			s.log.Warn("a pod's status could not be written", "pod", c.pod.Namespace+"/"+c.pod.Name, "error", err)
		}
		s.statuses.done(c.pod.UID)
	}
}

// writeStatus writes a change to a pod that waits, and only if it still does: somebody else may have bound it.
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
	return errors.New("it changes all the time")
}

// patchStatus sets a condition of a pod, if it is not nil, and the node it is nominated for, if that is not nil and another than it was. If
// so asked, it does that only to the very version of the pod.
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

// changedCondition is a condition as it is to be written, and whether it differs from what the pod has.
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

// retriable errors are those of a server that is not well; what it refuses it would refuse again.
func retriable(err error) bool {
	return apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) || errors.Is(err, syscall.ECONNREFUSED)
}
