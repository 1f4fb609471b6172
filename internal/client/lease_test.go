package client

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// A component that was stalled until its lease expired sends nothing, even before it knows, and never again.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Lease{}
		if err := l.Check(); err != nil {
			t.Errorf("without an election: %v", err)
		}
		l.setDuration(15 * time.Second)
		time.Sleep(time.Minute)
		if err := l.Check(); err != nil || l.held() {
			t.Errorf("before it was held: %v", err)
		}
		stopped := false
		w := &leaseLock{Interface: slowLock{10 * time.Second, nil}, lease: l, stop: func() { stopped = true }}
		if err := w.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}); err != nil || !l.held() {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second) // 14 s after the request was sent
		if err := l.Check(); err != nil {
			t.Errorf("within the lease: %v", err)
		}
		w.Interface = slowLock{0, errors.New("refused")}
		if err := w.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}); err == nil {
			t.Errorf("refused without an error")
		}
		time.Sleep(time.Second)
		if err := l.Check(); !errors.Is(err, ErrNotLeading) {
			t.Errorf("after the lease: %v", err)
		}
		w.Interface = slowLock{}
		if err := w.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}); !errors.Is(err, ErrNotLeading) || !stopped {
			t.Errorf("taken again: %v, %v", err, stopped)
		}
		if _, err := (leasedTransport{http.DefaultTransport, l}).RoundTrip(&http.Request{}); !errors.Is(err, ErrNotLeading) {
			t.Errorf("a request: %v", err)
		}
	})
}

// An in-flight write gets writeGrace when its component stops, so that the lease is not released while the server performs it;
// a read is cancelled at once.
func TestWriteGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			method       string
			takes, after time.Duration // until the answer comes, and until RoundTrip returns
			answered     bool
		}{
			{http.MethodPost, 3 * time.Second, 3 * time.Second, true}, {http.MethodDelete, time.Hour, time.Second + writeGrace, false}, {http.MethodGet, 3 * time.Second, time.Second, false},
		} {
			slow := roundTripper(func(r *http.Request) (*http.Response, error) {
				select {
				case <-r.Context().Done():
					return nil, r.Context().Err()
				case <-time.After(c.takes):
					return &http.Response{Body: http.NoBody}, nil
				}
			})
			ctx, stop := context.WithCancel(t.Context())
			began := time.Now()
			time.AfterFunc(time.Second, stop)
			request, err := http.NewRequestWithContext(ctx, c.method, "https://127.0.0.1", nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := (leasedTransport{slow, &Lease{}}).RoundTrip(request)
			if after := time.Since(began); after != c.after || (err == nil) != c.answered {
				t.Errorf("%s returned after %v with %v", c.method, after, err)
			}
			if err == nil {
				answer.Body.Close()
			}
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The lease is not released before the work has ended.
func TestRelease(t *testing.T) {
	l := &Lease{}
	l.setDuration(time.Hour)
	w := &leaseLock{Interface: slowLock{}, lease: l, stop: func() {}}
	if err := w.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}); err != nil {
		t.Fatal(err)
	}
	if err := w.Update(t.Context(), resourcelock.LeaderElectionRecord{}); err == nil || l.Check() != nil {
		t.Errorf("let go while the work goes on")
	}
	w.workEnded.Store(true)
	if err := w.Update(t.Context(), resourcelock.LeaderElectionRecord{}); err != nil || l.Check() == nil {
		t.Errorf("held after it was let go: %v", err)
	}
}

// A connection closes when the lease was lost between the start of a request and its first byte.
func TestLeasedConnection(t *testing.T) {
	l := &Lease{}
	ours, theirs := net.Pipe()
	defer theirs.Close()
	dial := l.dialer(func(context.Context, string, string) (net.Conn, error) { return ours, nil })
	conn, err := dial(t.Context(), "tcp", "anywhere")
	if err != nil {
		t.Fatal(err)
	}
	l.end()
	if _, err := conn.Write([]byte("GET")); !errors.Is(err, ErrNotLeading) {
		t.Errorf("written: %v", err)
	}
	if _, err := theirs.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
	if _, err := dial(t.Context(), "tcp", "anywhere"); !errors.Is(err, ErrNotLeading) {
		t.Errorf("dialled: %v", err)
	}
}

// slowLock is a lock whose calls take some time.
type slowLock struct {
	takes time.Duration
	err   error
}

func (s slowLock) do() error {
	time.Sleep(s.takes)
	return s.err
}

func (s slowLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &resourcelock.LeaderElectionRecord{}, nil, s.do()
}
func (s slowLock) Create(context.Context, resourcelock.LeaderElectionRecord) error { return s.do() }
func (s slowLock) Update(context.Context, resourcelock.LeaderElectionRecord) error { return s.do() }
func (slowLock) RecordEvent(string)                                                {}
func (slowLock) Identity() string                                                  { return "me" }
func (slowLock) Describe() string                                                  { return "slow" }
