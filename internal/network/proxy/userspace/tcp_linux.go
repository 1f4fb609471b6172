package userspace

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// acceptPause is for when the process has no more files: some will be closed.
const acceptPause = 50 * time.Millisecond

// accept takes connections until the listener is closed.
func (m *Mode) accept(p *pool) {
	for {
		conn, err := p.tcp.AcceptTCP()
		switch {
		case err == nil:
		case errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, syscall.ECONNABORTED):
			continue
		default:
			m.warn("accepting a connection", p.name.key, err)
			select {
			case <-m.ctx.Done():
				return
			case <-time.After(acceptPause):
			}
			continue
		}
		if !m.connections.take() {
			m.warn("a connection is refused", p.name.key, errors.New("there are too many"))
			reset(conn)
			continue
		}
		m.wg.Go(func() {
			defer m.connections.give()
			m.serve(p, conn)
		})
	}
}

// reset closes a connection in a way that the other side cannot take for a good end.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}

func (m *Mode) serve(p *pool, client *net.TCPConn) {
	endpoint, err := m.dial(p, unmapped(client.RemoteAddr()).Addr())
	if err != nil {
		if m.ctx.Err() == nil {
			m.log.Debug("no endpoint of a service takes a connection", "service", p.name.key.String(), "error", err)
		}
		reset(client)
		return
	}
	m.join(client, endpoint)
}

// dial connects to an endpoint, and if it does not answer to the next one.
func (m *Mode) dial(p *pool, client netip.Addr) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(m.ctx, m.limits.DialAll)
	defer cancel()
	failed := errors.New("there are no endpoints")
	// One that refuses takes no time: all get a chance. The only one gets several.
	for i := range min(max(p.balancer.size(), len(m.limits.Dial)), m.limits.Attempts) {
		to, ok := p.balancer.pick(client, time.Now(), i > 0)
		if !ok || ctx.Err() != nil {
			break
		}
		d := net.Dialer{Timeout: m.limits.Dial[min(i, len(m.limits.Dial)-1)]}
		conn, err := d.DialTCP(ctx, "tcp", netip.AddrPort{}, to)
		if err == nil {
			return conn, nil
		}
		failed = err
	}
	return nil, failed
}

// join hands on what both sides say until both are done, or one is gone, or neither has said anything for too long.
func (m *Mode) join(a, b *net.TCPConn) {
	stop := context.AfterFunc(m.ctx, func() { reset(a); reset(b) })
	defer stop()
	j := joint{limits: &m.limits}
	j.heard()
	var wg sync.WaitGroup
	wg.Go(func() { j.hand(a, b) })
	j.hand(b, a)
	wg.Wait()
	_, _ = a.Close(), b.Close()
}

// joint is two connections that are one.
type joint struct {
	limits *Limits
	last   atomic.Int64 // when something was said, in nanoseconds
	ended  atomic.Bool  // one side is done
}

func (j *joint) heard() { j.last.Store(time.Now().UnixNano()) }

func (j *joint) idle() bool {
	limit := j.limits.Idle
	if j.ended.Load() {
		limit = j.limits.HalfClosed
	}
	return time.Since(time.Unix(0, j.last.Load())) >= limit
}

// hand hands on one direction. The kernel does it, without copying.
func (j *joint) hand(to, from *net.TCPConn) {
	tick := min(j.limits.Idle, j.limits.HalfClosed) / 4
	for {
		_ = from.SetReadDeadline(time.Now().Add(tick))
		n, err := io.Copy(to, from)
		if n > 0 {
			j.heard()
		}
		switch {
		case err == nil:
			j.ended.Store(true)
			_ = to.CloseWrite()
			return
		case errors.Is(err, os.ErrDeadlineExceeded) && !j.idle():
			continue
		}
		reset(to)
		reset(from)
		return
	}
}
