package scheduler

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// errNotLeading is the error of what was not sent to the API because another scheduler may be at work by now.
var errNotLeading = errors.New("another scheduler may be leading by now")

// lease knows until when this scheduler leads. A process that was stalled for long does not learn in time that its lease ran out, so what it
// is about to write asks here first.
type lease struct {
	mu       sync.Mutex
	duration time.Duration // 0: there is no election
	renewed  time.Time     // when the last renewal that succeeded was sent
}

func (l *lease) check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.duration != 0 && time.Since(l.renewed) >= l.duration {
		return errNotLeading
	}
	return nil
}

// held reports whether this scheduler ever led.
func (l *lease) held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.renewed.IsZero()
}

// fence returns an error if nothing may be written any more.
func (s *Scheduler) fence() error { return s.lease.check() }

// watchedLock is a lock that notes when it was renewed.
type watchedLock struct {
	resourcelock.Interface
	lease *lease
}

// Create makes the lock ours.
func (w *watchedLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return w.note(func() error { return w.Interface.Create(ctx, r) })
}

// Update makes the lock ours, or renews it.
func (w *watchedLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return w.note(func() error { return w.Interface.Update(ctx, r) })
}

func (w *watchedLock) note(renew func() error) error {
	sent := time.Now()
	if err := renew(); err != nil {
		return err
	}
	w.lease.mu.Lock()
	defer w.lease.mu.Unlock()
	w.lease.renewed = sent
	return nil
}

// lead calls work while this scheduler leads, and returns when it does not any more or ctx ends.
func (s *Scheduler) lead(ctx context.Context, work func(context.Context)) error {
	e := s.config.LeaderElection
	if !e.Elect {
		work(ctx)
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	s.lease.duration = e.LeaseDuration
	lock := &watchedLock{lease: &s.lease, Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: e.ResourceNamespace, Name: e.Name},
		Client:     s.api.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
	}}
	done := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: e.LeaseDuration, RenewDeadline: e.RenewDeadline, RetryPeriod: e.RetryPeriod, Name: e.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				defer close(done)
				work(ctx)
			},
			OnNewLeader:      func(id string) { s.log.Info("there is a new leader", "scheduler", id, "me", id == lock.Identity()) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	elector.Run(klog.NewContext(ctx, klog.Logger{})) // which says all that in its own way
	if s.lease.held() {
		<-done
	}
	if ctx.Err() == nil {
		return errors.New("the lease that makes this scheduler the leader was lost")
	}
	return nil
}
