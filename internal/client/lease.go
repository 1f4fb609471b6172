package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// ErrNotLeading is the error of a request that was not sent because the lease was lost and another instance of the component may be leading.
var ErrNotLeading = errors.New("another instance may be leading by now")

// Lease tracks until when this instance of a component is the leader. A process that was stalled does not learn in time that its lease
// expired, so the clients that are Under it check it before every request, and again before every write to the connection. A lost lease stays lost:
// the caches of this instance may lack what the next leader did. The zero value is the lease of a component without an election, and never expires.
type Lease struct {
	mu        sync.Mutex
	duration  time.Duration // 0 if there is no election
	renewedAt time.Time     // when the last successful renewal was sent; zero before the first
	lost      bool
}

// Check returns an error if the lease was lost and nothing may be sent any more. Before the lease was first held it returns nil, so that it can be
// acquired.
func (l *Lease) Check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.lost && l.duration != 0 && !l.renewedAt.IsZero() {
		// The wall clock advances while a machine sleeps, the monotonic clock while somebody sets the wall clock back.
		now := time.Now()
		l.lost = now.Sub(l.renewedAt) >= l.duration || now.Round(0).Sub(l.renewedAt.Round(0)) >= l.duration
	}
	if l.lost {
		return ErrNotLeading
	}
	return nil
}

// setDuration sets for how long after a renewal no other instance can lead.
func (l *Lease) setDuration(duration time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.duration = duration
}

// held reports whether this instance ever held the lease.
func (l *Lease) held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.renewedAt.IsZero()
}

// renew records that the lease was acquired or renewed by a request that was sent at a time.
func (l *Lease) renew(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewedAt = sent
}

// end marks the lease as lost.
func (l *Lease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = true
}

// Under returns a client that sends nothing once the lease is lost.
func (c *Client) Under(l *Lease) (*Client, error) {
	config := c.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return leasedTransport{next, l} })
	if config.Transport == nil {
		config.Dial = l.dialer(config.Dial)
	}
	under, err := newClient(config, c.component, c.shared)
	if err != nil {
		return nil, err
	}
	under.spans = c.spans
	if c.shared == nil {
		under.spans = &spanBatcher{send: under.sendSpans}
	}
	return under, nil
}

// leasedTransport is a transport that sends requests only while a lease is held.
type leasedTransport struct {
	next  http.RoundTripper
	lease *Lease
}

// writeGrace is how long an in-flight write may take after its context has ended.
const writeGrace = 5 * time.Second

// RoundTrip sends a request. An in-flight write is not cancelled when the component stops: the server may perform it anyway, after the lease
// was released and the next leader has started.
func (t leasedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.lease.Check(); err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return t.next.RoundTrip(r)
	}
	ctx, cancel := withGrace(r.Context())
	response, err := t.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	response.Body = &closeNotifier{response.Body, cancel}
	return response, nil
}

// withGrace returns a context that ends writeGrace after ctx is cancelled, or at ctx's deadline.
func withGrace(ctx context.Context) (context.Context, context.CancelFunc) {
	later := context.WithoutCancel(ctx)
	var cancel context.CancelFunc
	if deadline, ok := ctx.Deadline(); ok {
		later, cancel = context.WithDeadline(later, deadline)
	} else {
		later, cancel = context.WithCancel(later)
	}
	var timer atomic.Pointer[time.Timer]
	stop := context.AfterFunc(ctx, func() { timer.Store(time.AfterFunc(writeGrace, cancel)) })
	return later, func() {
		stop()
		if t := timer.Load(); t != nil {
			t.Stop()
		}
		cancel()
	}
}

// closeNotifier is a body that calls a function when it is closed.
type closeNotifier struct {
	io.ReadCloser
	then func()
}

// Close closes the body and calls the function.
func (f *closeNotifier) Close() error {
	defer f.then()
	return f.ReadCloser.Close()
}

// WrappedRoundTripper lets client-go find the wrapped transport.
func (t leasedTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// dialer returns a dial function whose connections close when the lease is lost: a process may be stalled between the start of a request and its first byte.
func (l *Lease) dialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext // as client-go does
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if err := l.Check(); err != nil {
			return nil, err
		}
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return leasedConn{conn, l}, nil
	}
}

type leasedConn struct {
	net.Conn
	lease *Lease
}

// Write writes to the connection, or closes it if the lease is lost.
func (c leasedConn) Write(b []byte) (int, error) {
	if err := c.lease.Check(); err != nil {
		return 0, errors.Join(fmt.Errorf("to %s: %w", c.RemoteAddr(), err), c.Close())
	}
	return c.Conn.Write(b)
}
