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

// Election configures leader election among the instances of a component.
type Election struct {
	Elect         bool          // whether there is an election
	LeaseDuration time.Duration // how long the other instances wait after the last renewal before they try to lead
	RenewDeadline time.Duration // how long a leader tries to renew its lease before it gives up
	RetryPeriod   time.Duration // time between two attempts
	// ResourceNamespace and Name are those of the Lease object.
	ResourceNamespace, Name string
}

// DefaultElection returns the default configuration of a component's election, which is upstream's.
func DefaultElection(component string) Election {
	return Election{Elect: true, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		ResourceNamespace: metav1.NamespaceSystem, Name: component}
}

// minLease is the shortest lease. Other instances read its duration and time of renewal in whole seconds (client-go compares the text), so for
// them it may have been renewed up to a second earlier, and its holder can rely on a second less.
const minLease = 2 * time.Second

// errLost is the error of Lead when the lease was lost.
var errLost = errors.New("leaderelection lost")

// Lead calls work when this instance becomes the leader. It returns when work has returned: if the lease is still held it is released, so that the next
// instance can lead at once; if it was lost that is an error. Work must use a client that is Under the lease. Lead is called once.
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
		return fmt.Errorf("a lease duration of %v is too short: it must be at least %v, because other instances count it in seconds", e.LeaseDuration, minLease)
	}
	l.setDuration(e.LeaseDuration.Truncate(time.Second) - time.Second)
	// The lease must be renewed until work has returned, so the election does not end with ctx.
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	lock := &leaseLock{Interface: held, lease: l, stop: stop}
	workDone := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: e.LeaseDuration, RenewDeadline: e.RenewDeadline, RetryPeriod: e.RetryPeriod, Name: e.Name, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(elected context.Context) {
				defer close(workDone)
				defer stop()
				leading, end := context.WithCancel(elected)
				defer end()
				defer context.AfterFunc(ctx, end)()
				work(leading)
				lock.workEnded.Store(elected.Err() == nil)
			},
			OnNewLeader: func(id string) {
				log.Info("new leader elected", "of", e.Name, "leader", id, "me", id == lock.Identity())
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
	elector.Run(klog.NewContext(electing, klog.Logger{})) // without client-go's log lines
	if l.held() {
		<-workDone
	}
	if lock.workEnded.Load() || ctx.Err() != nil {
		return nil
	}
	return errLost
}

// leaseLock is a lock that records when its lease is renewed, and releases it only after work has returned.
type leaseLock struct {
	resourcelock.Interface
	lease     *Lease
	stop      func()      // ends the election
	workEnded atomic.Bool // set when work has returned while the lease was held
}

// Get implements resourcelock.Interface.
func (w *leaseLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if err := w.check(); err != nil {
		return nil, nil, err
	}
	return w.Interface.Get(ctx)
}

// Create implements resourcelock.Interface. It acquires the lease.
func (w *leaseLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return w.renew(func() error { return w.Interface.Create(ctx, r) })
}

// Update implements resourcelock.Interface. It acquires, renews or releases the lease. It is released only when work has returned; otherwise it expires.
func (w *leaseLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if r.HolderIdentity != "" {
		return w.renew(func() error { return w.Interface.Update(ctx, r) })
	}
	if !w.workEnded.Load() {
		return errors.New("the lease is not released before the leader's work has ended")
	}
	err := w.Interface.Update(ctx, r)
	if !apierrors.IsConflict(err) { // a conflict with an in-flight renewal is retried
		w.lease.end()
	}
	return err
}

func (w *leaseLock) renew(send func() error) error {
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

// RecordEvent implements resourcelock.Interface. It records nothing once the lease is lost.
func (w *leaseLock) RecordEvent(what string) {
	if w.lease.Check() == nil {
		w.Interface.RecordEvent(what)
	}
}

// check returns an error and ends the election if the lease was lost, because a lost lease is never acquired again.
func (w *leaseLock) check() error {
	err := w.lease.Check()
	if err != nil {
		w.stop()
	}
	return err
}
