package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const sharesAddresses = true

// shareAddress lets several sockets have the same address: the kernel shares out the packets among them.
func shareAddress(_, _ string, c syscall.RawConn) error {
	var err error
	if other := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}); other != nil {
		return other
	}
	return err
}

const (
	// batch is how many packets are read and written at a time.
	batch = 32
	// maxKept is how long a buffer for answers may grow before it is given back.
	maxKept = 8192
)

// message is struct mmsghdr of the kernel.
type message struct {
	header unix.Msghdr
	size   uint32
}

// packets are the packets that are read and answered together.
type packets struct {
	in, out   [batch]message
	into, of  [batch]unix.Iovec
	from      [batch]unix.RawSockaddrInet6 // large enough for both families
	received  [batch][ownSize]byte
	answers   [batch][]byte
	zones     [batch]zoneKind
	got, sent int
	errno     syscall.Errno
	toSend    []message
}

func newPackets() *packets {
	p := &packets{}
	for i := range batch {
		p.into[i].Base = &p.received[i][0]
		p.into[i].SetLen(ownSize)
		p.in[i].header.Iov = &p.into[i]
		p.in[i].header.SetIovlen(1)
		p.in[i].header.Name = (*byte)(unsafe.Pointer(&p.from[i]))
		p.answers[i] = make([]byte, 0, minSize)
	}
	return p
}

// receive waits for packets and takes as many as there are.
func (p *packets) receive(fd uintptr) bool {
	for i := range p.in {
		p.in[i].header.Namelen = unix.SizeofSockaddrInet6
	}
	n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&p.in[0])), batch, unix.MSG_DONTWAIT, 0, 0)
	p.got, p.errno = int(n), errno
	return errno != unix.EAGAIN && errno != unix.EINTR
}

// send sends what is to be sent, as much as there is room for.
func (p *packets) send(fd uintptr) bool {
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&p.toSend[0])), uintptr(len(p.toSend)), unix.MSG_DONTWAIT, 0, 0)
	p.sent, p.errno = int(n), errno
	return errno != unix.EAGAIN && errno != unix.EINTR
}

// answer puts an answer to a packet among those to be sent.
func (p *packets) answer(i int, msg []byte) {
	n := len(p.toSend)
	p.toSend = p.toSend[:n+1]
	p.of[n].Base = &msg[0]
	p.of[n].SetLen(len(msg))
	out := &p.toSend[n].header
	*out = unix.Msghdr{Name: p.in[i].header.Name, Namelen: p.in[i].header.Namelen, Iov: &p.of[n]}
	out.SetIovlen(1)
}

// source is the address that a packet came from.
func (p *packets) source(i int) netip.Addr {
	from := &p.from[i]
	if from.Family == unix.AF_INET {
		return netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(from)).Addr)
	}
	return netip.AddrFrom16(from.Addr)
}

// client is who sent a packet.
func (p *packets) client(i int) netip.AddrPort {
	from := &p.from[i]
	if from.Family == unix.AF_INET {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(from))
		return netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), networkOrder(v4.Port))
	}
	addr := netip.AddrFrom16(from.Addr)
	if from.Scope_id != 0 {
		addr = addr.WithZone(strconv.Itoa(int(from.Scope_id)))
	}
	return netip.AddrPortFrom(addr, networkOrder(from.Port))
}

func networkOrder(port uint16) uint16 {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], port)
	return binary.BigEndian.Uint16(b[:])
}

// serveUDP answers what comes to a socket until it is closed.
func (s *Server) serveUDP(ctx context.Context, conn *net.UDPConn, m *counts) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	p, q := newPackets(), &query{}
	receive, send := p.receive, p.send
	for {
		if err := raw.Read(receive); err != nil {
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		switch p.errno {
		case 0:
		case unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.ENOMEM, unix.ENOBUFS:
			continue // about something sent before, or soon over
		default:
			return fmt.Errorf("receiving: %w", p.errno)
		}
		begin := time.Now()
		p.toSend = p.out[:0]
		for i := range p.got {
			s.answerPacket(ctx, conn, p, i, q, m)
		}
		for len(p.toSend) > 0 {
			if err := raw.Write(send); err != nil {
				return nil // closed
			}
			if p.errno != 0 {
				p.sent = 1 // the first cannot be sent: its client may be gone, or its route
			}
			p.toSend = p.toSend[p.sent:]
		}
		m.took(p.zones[:p.got], time.Since(begin))
	}
}

func (s *Server) answerPacket(ctx context.Context, conn *net.UDPConn, p *packets, i int, q *query, m *counts) {
	if cap(p.answers[i]) > maxKept {
		p.answers[i] = make([]byte, 0, minSize)
	}
	p.zones[i] = zoneNone
	if p.in[i].header.Flags&unix.MSG_TRUNC != 0 {
		return // longer than any question
	}
	if !s.sources.allow(p.source(i)) {
		return
	}
	msg, todo := s.answer(q, p.received[i][:p.in[i].size], true, p.answers[i][:0], m)
	switch {
	case todo != nil:
		client := p.client(i)
		s.later(ctx, q, todo, func(msg []byte) { conn.WriteToUDPAddrPort(msg, client) }, true, m)
	case msg != nil:
		p.zones[i] = q.zone
		p.answers[i] = msg
		p.answer(i, msg)
	}
}
