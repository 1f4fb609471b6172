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

// acceptPause is the pause after a failed accept, such as when the process has no more file descriptors.
const acceptPause = 50 * time.Millisecond

// accept accepts connections until the listener is closed.
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
			m.warn("failed to accept a connection to a service", p.name.key, err)
			select {
			case <-m.ctx.Done():
				return
			case <-time.After(acceptPause):
			}
			continue
		}
		if !m.connections.take() {
			m.warn("refused a connection to a service", p.name.key, errors.New("there are too many connections"))
			reset(conn)
			continue
		}
		m.wg.Go(func() {
			defer m.connections.give()
			m.serve(p, conn)
		})
	}
}

// reset closes a connection with a TCP reset, so that the other side does not take it for a normal end.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}

func (m *Mode) serve(p *pool, client *net.TCPConn) {
	endpoint, err := m.dial(p, unmapped(client.RemoteAddr()).Addr())
	if err != nil {
		if m.ctx.Err() == nil {
			m.log.Debug("failed to connect to any endpoint of a service", "service", p.name.key.String(), "error", err)
		}
		reset(client)
		return
	}
	m.splice(client, endpoint)
}

// dial connects to an endpoint or, if that fails, to the next one.
func (m *Mode) dial(p *pool, client netip.Addr) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(m.ctx, m.limits.DialAll)
	defer cancel()
	failed := errors.New("there are no endpoints")
	// A refused connection takes no time, so all endpoints are tried. A single endpoint is tried several times.
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

// splice copies between two connections until both are closed, one fails, or both have been idle for too long.
func (m *Mode) splice(a, b *net.TCPConn) {
	stop := context.AfterFunc(m.ctx, func() { reset(a); reset(b) })
	defer stop()
	j := splice{limits: &m.limits}
	j.active()
	var wg sync.WaitGroup
	wg.Go(func() { j.copy(a, b) })
	j.copy(b, a)
	wg.Wait()
	_, _ = a.Close(), b.Close()
}

// splice is the state of a pair of connected connections.
type splice struct {
	limits     *Limits
	last       atomic.Int64 // when data was last copied, in Unix nanoseconds
	halfClosed atomic.Bool  // one side has closed its direction
}

func (j *splice) active() { j.last.Store(time.Now().UnixNano()) }

func (j *splice) idle() bool {
	limit := j.limits.Idle
	if j.halfClosed.Load() {
		limit = j.limits.HalfClosed
	}
	return time.Since(time.Unix(0, j.last.Load())) >= limit
}

// copy copies one direction. The kernel does it by splice(2), without copying to this process.
func (j *splice) copy(to, from *net.TCPConn) {
	tick := min(j.limits.Idle, j.limits.HalfClosed) / 4
	for {
		_ = from.SetReadDeadline(time.Now().Add(tick))
		n, err := io.Copy(to, from)
		if n > 0 {
			j.active()
		}
		switch {
		case err == nil:
			j.halfClosed.Store(true)
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
