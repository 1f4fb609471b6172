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

// relay forwards UDP packets between senders and their endpoints.
type relay struct {
	m       *Mode
	pool    *pool
	conn    *net.UDPConn
	mu      sync.Mutex
	senders map[netip.AddrPort]*sender
	closed  bool
}

// sender is a client address and port, with a socket of its own to its endpoint.
type sender struct {
	from, to netip.AddrPort
	conn     *net.UDPConn
	last     atomic.Int64 // when it last sent or was answered, in Unix nanoseconds
}

func (s *sender) active() { s.last.Store(time.Now().UnixNano()) }

func newRelay(m *Mode, p *pool, conn *net.UDPConn) *relay {
	return &relay{m: m, pool: p, conn: conn, senders: map[netip.AddrPort]*sender{}}
}

// run forwards packets of senders until the relay is closed.
func (r *relay) run() {
	for {
		err := receive(r.conn, func(packet []byte, from netip.AddrPort) { r.forward(packet, from) })
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil && !transient(err):
			r.m.warn("failed to receive packets to a service", r.pool.name.key, err)
			select {
			case <-r.m.ctx.Done():
				return
			case <-time.After(acceptPause):
			}
		}
	}
}

// transient reports whether an error is only about a packet that was sent before.
func transient(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)
}

// forward sends a packet to the sender's endpoint or, if that is unreachable, to the next one. The kernel reports that only after an earlier packet
// was refused, which may be so for each of the endpoints.
func (r *relay) forward(packet []byte, from netip.AddrPort) {
	for range r.m.limits.Attempts {
		s := r.sender(from)
		if s == nil {
			return
		}
		_, err := s.conn.Write(packet)
		if err == nil || !transient(err) && !errors.Is(err, net.ErrClosed) { // ErrClosed: another goroutine has just dropped the sender
			return
		}
		r.drop(s, true)
	}
}

// sender returns the sender with an address, and adds it with an endpoint if it is new. It returns nil if the packet must be dropped.
func (r *relay) sender(from netip.AddrPort) *sender {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	if s := r.senders[from]; s != nil {
		s.active()
		return s
	}
	to, ok := r.pool.balancer.pick(from.Addr(), time.Now(), false)
	if !ok {
		return nil
	}
	if !r.m.senders.take() {
		r.m.warn("dropped a packet to a service", r.pool.name.key, errors.New("there are too many senders"))
		return nil
	}
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		r.m.senders.give()
		r.m.warn("dropped a packet to a service", r.pool.name.key, err)
		return nil
	}
	s := &sender{from: from, to: to, conn: conn}
	s.active()
	r.senders[from] = s
	r.m.wg.Go(func() { r.returnPackets(s) })
	return s
}

// returnPackets forwards the packets of an endpoint to the sender, until the sender is idle or dropped.
func (r *relay) returnPackets(s *sender) {
	defer r.m.senders.give()
	defer s.conn.Close()
	for {
		last := time.Unix(0, s.last.Load())
		_ = s.conn.SetReadDeadline(last.Add(r.m.limits.SenderIdle))
		err := receive(s.conn, func(packet []byte, _ netip.AddrPort) {
			s.active()
			_, _ = r.conn.WriteToUDPAddrPort(packet, s.from)
		})
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			if r.expire(s) {
				return
			}
		default: // the endpoint is unreachable, or the socket is closed
			r.drop(s, transient(err))
			return
		}
	}
}

// drop removes a sender, if it is still registered. away says that its endpoint is unreachable, so that the client gets another one.
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

// expire removes a sender that has been idle for too long, and reports whether it has.
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

// dropExcept drops the senders whose endpoints are not among the serving ones.
func (r *relay) dropExcept(serving []netip.AddrPort) {
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
	r.dropExcept(nil)
	_ = r.conn.Close()
}

// packetBuffers pools buffers. One is used only while a packet is forwarded, because very many sockets may be waiting.
var packetBuffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// receive waits for a packet and calls use with it.
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
		buffer = packetBuffers.Get().(*[64 << 10]byte)
		for {
			n, from, failed = unix.Recvfrom(int(fd), buffer[:], unix.MSG_DONTWAIT)
			if !errors.Is(failed, unix.EINTR) {
				break
			}
		}
		if failed == nil {
			return true
		}
		packetBuffers.Put(buffer)
		buffer = nil
		return !errors.Is(failed, unix.EAGAIN)
	})
	if buffer != nil {
		defer packetBuffers.Put(buffer)
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
