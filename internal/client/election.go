package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// Election says whether and how the instances of a component agree on the one that works.
type Election struct {
	Elect         bool
	LeaseDuration time.Duration // how long a leader that is silent is left alone
	RenewDeadline time.Duration // how long a leader tries to renew its lease before it gives up
	RetryPeriod   time.Duration // between tries
	// Of the Lease that they hold.
	ResourceNamespace, Name string
}

// DefaultElection is how the instances of a component agree unless they are told otherwise.
func DefaultElection(component string) Election {
	return Election{Elect: true, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		ResourceNamespace: metav1.NamespaceSystem, Name: component}
}

// minLease is the shortest lease. Others read in whole seconds how long a lease is and when it was renewed (client-go compares the text), so for
// them it may have been renewed up to a second before it was, and what its holder can rely on is a second less.
const minLease = 2 * time.Second

// errLost ends an instance that does not lead any more.
var errLost = errors.New("leaderelection lost")

// Lead calls work when this instance leads. It returns when work has ended: by itself or because ctx did, then the next one can lead at once; or
// because the lease was lost, which is an error. Work must use a client that is under the lease. Lead is called once.
func (l *Lease) Lead(ctx context.Context, c *Client, e Election, log *slog.Logger, work func(context.Context)) error {
	if !e.Elect {
		work(ctx)
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	if c, err = c.Under(l); err != nil {
		return err
	}
	recording, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	return l.lead(ctx, &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: e.ResourceNamespace, Name: e.Name},
		Client:     c.Kubernetes().CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID()), EventRecorder: c.Recorder(recording)},
	}, e, log, work)
}

func (l *Lease) lead(ctx context.Context, held resourcelock.Interface, e Election, log *slog.Logger, work func(context.Context)) error {
	if e.LeaseDuration < minLease {
		return fmt.Errorf("a lease of %v is too short, it must be %v at least: others count it in seconds", e.LeaseDuration, minLease)
	}
	l.elect(e.LeaseDuration.Truncate(time.Second) - time.Second)
	// The lease is renewed until the work has ended, so the election does not end with ctx.
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	lock := &watchedLock{Interface: held, lease: l, stop: stop}
	worked := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: e.LeaseDuration, RenewDeadline: e.RenewDeadline, RetryPeriod: e.RetryPeriod, Name: e.Name, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(elected context.Context) {
				defer close(worked)
				defer stop()
				leading, end := context.WithCancel(elected)
				defer end()
				defer context.AfterFunc(ctx, end)()
				work(leading)
				lock.idle.Store(elected.Err() == nil)
			},
			OnNewLeader: func(id string) {
				log.Info("there is a new leader", "of", e.Name, "leader", id, "me", id == lock.Identity())
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() {
		if !l.held() {
			stop()
		}
	})()
	elector.Run(klog.NewContext(electing, klog.Logger{})) // which says all that in its own way
	if l.held() {
		<-worked
	}
	if lock.idle.Load() || ctx.Err() != nil {
		return nil
	}
	return errLost
}

// watchedLock notes when its lease is renewed, and lets it go when that is safe.
type watchedLock struct {
	resourcelock.Interface
	lease *Lease
	stop  func()      // ends the election
	idle  atomic.Bool // the work has ended, and the lease was not lost until then
}

// Get reads the lock.
func (w *watchedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if err := w.check(); err != nil {
		return nil, nil, err
	}
	return w.Interface.Get(ctx)
}

// Create makes the lock ours.
func (w *watchedLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return w.renew(func() error { return w.Interface.Create(ctx, r) })
}

// Update makes the lock ours, renews it or lets it go. It is let go only when the work has ended; without that it runs out by itself.
func (w *watchedLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if r.HolderIdentity != "" {
		return w.renew(func() error { return w.Interface.Update(ctx, r) })
	}
	if !w.idle.Load() {
		return errors.New("the leader's work has not ended yet")
	}
	err := w.Interface.Update(ctx, r)
	if !apierrors.IsConflict(err) { // with a renewal that was under way: then it is tried again
		w.lease.end()
	}
	return err
}

func (w *watchedLock) renew(send func() error) error {
	if err := w.check(); err != nil {
		return err
	}
	sent := time.Now()
	if err := send(); err != nil {
		return err
	}
	w.lease.renew(sent)
	return nil
}

// RecordEvent tells people what becomes of the lease, while that may be told.
func (w *watchedLock) RecordEvent(what string) {
	if w.lease.Check() == nil {
		w.Interface.RecordEvent(what)
	}
}

// check ends the election if the lease was lost: to go on would be in vain.
func (w *watchedLock) check() error {
	err := w.lease.Check()
	if err != nil {
		w.stop()
	}
	return err
}
