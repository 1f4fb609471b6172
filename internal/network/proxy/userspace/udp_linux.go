package userspace

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// relay hands on packets of UDP between senders and the endpoints they were given.
type relay struct {
	m       *Mode
	pool    *pool
	conn    *net.UDPConn
	mu      sync.Mutex
	senders map[netip.AddrPort]*sender
	closed  bool
}

// sender is an address and port that packets come from, with a socket of its own to its endpoint.
type sender struct {
	from, to netip.AddrPort
	conn     *net.UDPConn
	last     atomic.Int64 // when it sent or was answered, in nanoseconds
}

func (s *sender) heard() { s.last.Store(time.Now().UnixNano()) }

func newRelay(m *Mode, p *pool, conn *net.UDPConn) *relay {
	return &relay{m: m, pool: p, conn: conn, senders: map[netip.AddrPort]*sender{}}
}

// run hands on what senders send until the relay is closed.
func (r *relay) run() {
	for {
		err := receive(r.conn, func(packet []byte, from netip.AddrPort) { r.hand(packet, from) })
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil && !transient(err):
			r.m.warn("receiving packets", r.pool.name.key, err)
			select {
			case <-r.m.ctx.Done():
				return
			case <-time.After(acceptPause):
			}
		}
	}
}

// transient are errors about one packet that was sent before.
func transient(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)
}

// hand sends a packet to the sender's endpoint. If nobody is there any more, to the next one. That is known for certain only when a packet before
// this one was not taken; there may be as many like that as there are endpoints.
func (r *relay) hand(packet []byte, from netip.AddrPort) {
	for range r.m.limits.Attempts {
		s := r.sender(from)
		if s == nil {
			return
		}
		_, err := s.conn.Write(packet)
		if err == nil || !transient(err) && !errors.Is(err, net.ErrClosed) { // it may have been dropped just now
			return
		}
		r.drop(s, true)
	}
}

// sender is the one that sends from an address, with an endpoint.
func (r *relay) sender(from netip.AddrPort) *sender {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	if s := r.senders[from]; s != nil {
		s.heard()
		return s
	}
	to, ok := r.pool.balancer.pick(from.Addr(), time.Now(), false)
	if !ok {
		return nil
	}
	if !r.m.senders.take() {
		r.m.warn("a packet is dropped", r.pool.name.key, errors.New("there are too many senders"))
		return nil
	}
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		r.m.senders.give()
		r.m.warn("a packet is dropped", r.pool.name.key, err)
		return nil
	}
	s := &sender{from: from, to: to, conn: conn}
	s.heard()
	r.senders[from] = s
	r.m.wg.Go(func() { r.answers(s) })
	return s
}

// answers hands on what an endpoint sends back, until there is nothing any more.
func (r *relay) answers(s *sender) {
	defer r.m.senders.give()
	defer s.conn.Close()
	for {
		last := time.Unix(0, s.last.Load())
		_ = s.conn.SetReadDeadline(last.Add(r.m.limits.SenderIdle))
		err := receive(s.conn, func(packet []byte, _ netip.AddrPort) {
			s.heard()
			_, _ = r.conn.WriteToUDPAddrPort(packet, s.from)
		})
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			if r.expire(s) {
				return
			}
		default: // there is nobody
			r.drop(s, transient(err))
			return
		}
	}
}

// drop forgets a sender, if it is still the one. away says that its endpoint is not there: it is to be given another.
func (r *relay) drop(s *sender, away bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.senders[s.from] == s {
		delete(r.senders, s.from)
		if away {
			r.pool.balancer.avoid(s.from.Addr(), s.to)
		}
	}
	_ = s.conn.Close()
}

// expire forgets a sender that has paused for too long.
func (r *relay) expire(s *sender) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(time.Unix(0, s.last.Load())) < r.m.limits.SenderIdle {
		return false
	}
	if r.senders[s.from] == s {
		delete(r.senders, s.from)
	}
	return true
}

// keep drops the senders whose endpoints do not serve any more.
func (r *relay) keep(serving []netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for from, s := range r.senders {
		if !slices.Contains(serving, s.to) {
			delete(r.senders, from)
			_ = s.conn.Close()
		}
	}
}

func (r *relay) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.keep(nil)
	_ = r.conn.Close()
}

// packets are buffers for packets. One is used only while a packet is handed on: there may be very many sockets that wait.
var packets = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// receive waits for a packet.
func receive(conn *net.UDPConn, use func(packet []byte, from netip.AddrPort)) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var buffer *[64 << 10]byte
	var n int
	var from unix.Sockaddr
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		buffer = packets.Get().(*[64 << 10]byte)
		for {
			n, from, failed = unix.Recvfrom(int(fd), buffer[:], unix.MSG_DONTWAIT)
			if !errors.Is(failed, unix.EINTR) {
				break
			}
		}
		if failed == nil {
			return true
		}
		packets.Put(buffer)
		buffer = nil
		return !errors.Is(failed, unix.EAGAIN)
	})
	if buffer != nil {
		defer packets.Put(buffer)
	}
	if err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	use(buffer[:n], addrPort(from))
	return nil
}

func addrPort(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
}
