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

// ErrNotLeading is the error of what was not sent because another instance of the component may be at work by now.
var ErrNotLeading = errors.New("another instance may be leading by now")

// Lease knows until when this instance of a component leads the others. A process that was stalled does not learn in time that its lease ran
// out, so the clients that are Under it ask before every request, and once more before every byte. What was lost stays lost: the caches of one
// that was away know nothing of what the others did. The zero value is that of a component without an election, and never ends.
type Lease struct {
	mu       sync.Mutex
	duration time.Duration // 0: there is no election
	renewed  time.Time     // when the last renewal that succeeded was sent; zero before there was one
	over     bool
}

// Check returns an error if nothing may be sent any more. Before the lease was held everything may: that is how it comes to be held.
func (l *Lease) Check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over && l.duration != 0 && !l.renewed.IsZero() {
		// The clock on the wall goes on while a machine sleeps, the other one while somebody sets the clock.
		now := time.Now()
		l.over = now.Sub(l.renewed) >= l.duration || now.Round(0).Sub(l.renewed.Round(0)) >= l.duration
	}
	if l.over {
		return ErrNotLeading
	}
	return nil
}

// elect says that there is an election, in which nobody else leads for so long after a renewal.
func (l *Lease) elect(duration time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.duration = duration
}

// held reports whether this instance ever led.
func (l *Lease) held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.renewed.IsZero()
}

// renew notes that the lease was taken or renewed by a request that was sent then.
func (l *Lease) renew(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = sent
}

// end gives the lease up.
func (l *Lease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
}

// Under returns a client that sends nothing after the lease was lost.
func (c *Client) Under(l *Lease) (*Client, error) {
	config := c.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return leased{next, l} })
	if config.Transport == nil {
		config.Dial = l.dialer(config.Dial)
	}
	under, err := newClient(config, c.component, c.shared)
	if err != nil {
		return nil, err
	}
	under.spans = c.spans
	if c.shared == nil {
		under.spans = &spanBatches{send: under.sendSpans}
	}
	return under, nil
}

// leased starts requests while a lease lasts.
type leased struct {
	next  http.RoundTripper
	lease *Lease
}

// lastAnswer is how long a write that is under way when its component is told to stop is waited for.
const lastAnswer = 5 * time.Second

// RoundTrip sends a request. A write is not given up when the component is told to stop: the server may be at it all the same, and the next
// leader, who starts when the lease is let go, would not know.
func (f leased) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := f.lease.Check(); err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return f.next.RoundTrip(r)
	}
	ctx, cancel := patient(r.Context())
	answer, err := f.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	answer.Body = &followed{answer.Body, cancel}
	return answer, nil
}

// patient is a context that ends some time after another one, or when that one would by itself.
func patient(ctx context.Context) (context.Context, context.CancelFunc) {
	later := context.WithoutCancel(ctx)
	var cancel context.CancelFunc
	if deadline, ok := ctx.Deadline(); ok {
		later, cancel = context.WithDeadline(later, deadline)
	} else {
		later, cancel = context.WithCancel(later)
	}
	var timer atomic.Pointer[time.Timer]
	stop := context.AfterFunc(ctx, func() { timer.Store(time.AfterFunc(lastAnswer, cancel)) })
	return later, func() {
		stop()
		if t := timer.Load(); t != nil {
			t.Stop()
		}
		cancel()
	}
}

// followed does something when a body is closed.
type followed struct {
	io.ReadCloser
	then func()
}

// Close ends the body.
func (f *followed) Close() error {
	defer f.then()
	return f.ReadCloser.Close()
}

// WrappedRoundTripper lets client-go find the transport underneath.
func (f leased) WrappedRoundTripper() http.RoundTripper { return f.next }

// dialer makes connections that break when the lease is lost: a process may be stalled between the start of a request and its first byte.
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

// Write sends bytes while the lease lasts.
func (c leasedConn) Write(b []byte) (int, error) {
	if err := c.lease.Check(); err != nil {
		return 0, errors.Join(fmt.Errorf("to %s: %w", c.RemoteAddr(), err), c.Close())
	}
	return c.Conn.Write(b)
}
