package client

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// sharedRecord is the content of a Lease, as client-go reads it.
type sharedRecord struct {
	mu      sync.Mutex
	record  *resourcelock.LeaderElectionRecord
	version int
}

// memoryLock is one instance's access to a sharedRecord. Once it stalls, its calls do not return before their contexts end.
type memoryLock struct {
	*sharedRecord
	identity string
	stallsAt time.Time // never if zero
	read     int       // the version that was read last
}

func (m *memoryLock) stall(ctx context.Context) error {
	if !m.stallsAt.IsZero() && !time.Now().Before(m.stallsAt) {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (m *memoryLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if err := m.stall(ctx); err != nil {
		return nil, nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.record == nil {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{}, "lease")
	}
	m.read = m.version
	record := *m.record
	raw, err := json.Marshal(record)
	return &record, raw, err
}

func (m *memoryLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return m.Update(ctx, r)
}

func (m *memoryLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if err := m.stall(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.read != m.version {
		return apierrors.NewConflict(schema.GroupResource{}, "lease", errors.New("it has changed"))
	}
	m.version++
	m.read, m.record = m.version, &r
	return nil
}

func (m *memoryLock) RecordEvent(string) {}
func (m *memoryLock) Identity() string   { return m.identity }
func (m *memoryLock) Describe() string   { return "in memory" }

var shortElection = Election{Elect: true, LeaseDuration: 2 * time.Second, RenewDeadline: 900 * time.Millisecond, RetryPeriod: 50 * time.Millisecond, Name: "test"}

// An instance that was stalled at any moment cannot send anything once another instance leads.
func TestNeverTwoLeaders(t *testing.T) {
	for offset := 2 * time.Second; offset < 3*time.Second; offset += 130 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			wakes := make(chan struct{})
			var all sync.WaitGroup
			record := &sharedRecord{}
			var lease Lease
			leading := make(chan struct{})
			all.Go(func() {
				first := &memoryLock{sharedRecord: record, identity: "first", stallsAt: time.Now().Add(offset)}
				_ = lease.lead(ctx, first, shortElection, slog.New(slog.DiscardHandler), func(ctx context.Context) {
					close(leading)
					<-wakes // whatever becomes of ctx
				})
			})
			<-leading
			took := make(chan time.Time)
			second, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{Lock: &memoryLock{sharedRecord: record, identity: "second"},
				LeaseDuration: shortElection.LeaseDuration, RenewDeadline: shortElection.RenewDeadline, RetryPeriod: shortElection.RetryPeriod,
				Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { took <- time.Now() }, OnStoppedLeading: func() {}}})
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() { second.Run(klog.NewContext(ctx, klog.Logger{})) })
			began := time.Now()
			at := <-took
			if err := lease.Check(); !errors.Is(err, ErrNotLeading) {
				t.Errorf("stalled after %v, the second leads %v later, and the first does not know: %v", offset, at.Sub(began)-offset, err)
			}
			cancel()
			close(wakes)
			all.Wait()
		})
	}
}

// An instance that stops releases its lease when its work has ended, so that the next one leads at once.
func TestHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		record := &sharedRecord{}
		var first, second Lease
		working, stop := context.WithCancel(t.Context())
		var firstEnded time.Time
		var all sync.WaitGroup
		leads := make(chan struct{})
		all.Go(func() {
			err := first.lead(working, &memoryLock{sharedRecord: record, identity: "first"}, shortElection, slog.New(slog.DiscardHandler), func(ctx context.Context) {
				close(leads)
				<-ctx.Done()
				time.Sleep(5 * time.Second) // what it has begun takes longer than the lease
				if err := first.Check(); err != nil {
					t.Errorf("the lease is not renewed while there is work: %v", err)
				}
				firstEnded = time.Now()
			})
			if err != nil {
				t.Error(err)
			}
			if first.Check() == nil {
				t.Error("it goes on as if it still had the lease")
			}
		})
		<-leads
		all.Go(func() {
			err := second.lead(t.Context(), &memoryLock{sharedRecord: record, identity: "second"}, shortElection, slog.New(slog.DiscardHandler), func(context.Context) {
				if since := time.Since(firstEnded); firstEnded.IsZero() || since > 500*time.Millisecond {
					t.Errorf("it leads %v after the first has ended", since)
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Second)
		stop()
		all.Wait()
	})
}

// A lease duration below minLease is refused.
func TestLeaseTooShort(t *testing.T) {
	e := shortElection
	e.LeaseDuration = 1900 * time.Millisecond
	err := new(Lease).lead(t.Context(), &memoryLock{sharedRecord: &sharedRecord{}}, e, slog.New(slog.DiscardHandler), func(context.Context) { t.Error("it leads") })
	if err == nil || !strings.Contains(err.Error(), "too short") {
		t.Error(err)
	}
}
