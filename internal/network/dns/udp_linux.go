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

// shareAddress sets SO_REUSEPORT, so that several sockets have the same address and the kernel distributes the packets among them.
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
	// batch is the most packets that are read or written with one system call.
	batch = 32
	// maxKeptBuffer is the largest answer buffer that is kept for the next packet.
	maxKeptBuffer = 8192
)

// message is the kernel's struct mmsghdr.
type message struct {
	header unix.Msghdr
	size   uint32
}

// packets is a batch of packets that are read and answered together.
type packets struct {
	in, out         [batch]message
	inVecs, outVecs [batch]unix.Iovec
	from            [batch]unix.RawSockaddrInet6 // the sources; large enough for both families
	received        [batch][ednsSize]byte
	answers         [batch][]byte
	zones           [batch]zoneKind
	receivedCount   int
	sentCount       int
	errno           syscall.Errno // the error of the last receive or send
	toSend          []message     // the part of out that is not sent yet
}

func newPackets() *packets {
	p := &packets{}
	for i := range batch {
		p.inVecs[i].Base = &p.received[i][0]
		p.inVecs[i].SetLen(ednsSize)
		p.in[i].header.Iov = &p.inVecs[i]
		p.in[i].header.SetIovlen(1)
		p.in[i].header.Name = (*byte)(unsafe.Pointer(&p.from[i]))
		p.answers[i] = make([]byte, 0, minUDPSize)
	}
	return p
}

// receive reads the packets that have arrived. Like a function for syscall.RawConn.Read it returns false if there are none yet.
func (p *packets) receive(fd uintptr) bool {
	for i := range p.in {
		p.in[i].header.Namelen = unix.SizeofSockaddrInet6
	}
	n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&p.in[0])), batch, unix.MSG_DONTWAIT, 0, 0)
	p.receivedCount, p.errno = int(n), errno
	return errno != unix.EAGAIN && errno != unix.EINTR
}

// send writes as many packets of toSend as the socket buffer takes. Like a function for syscall.RawConn.Write it returns false if it takes none yet.
func (p *packets) send(fd uintptr) bool {
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&p.toSend[0])), uintptr(len(p.toSend)), unix.MSG_DONTWAIT, 0, 0)
	p.sentCount, p.errno = int(n), errno
	return errno != unix.EAGAIN && errno != unix.EINTR
}

// answer adds the answer to the i-th received packet to toSend.
func (p *packets) answer(i int, msg []byte) {
	n := len(p.toSend)
	p.toSend = p.toSend[:n+1]
	p.outVecs[n].Base = &msg[0]
	p.outVecs[n].SetLen(len(msg))
	out := &p.toSend[n].header
	*out = unix.Msghdr{Name: p.in[i].header.Name, Namelen: p.in[i].header.Namelen, Iov: &p.outVecs[n]}
	out.SetIovlen(1)
}

// source returns the source address of the i-th received packet.
func (p *packets) source(i int) netip.Addr {
	from := &p.from[i]
	if from.Family == unix.AF_INET {
		return netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(from)).Addr)
	}
	return netip.AddrFrom16(from.Addr)
}

// client returns the source address and port of the i-th received packet.
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

// serveUDP answers the packets of a socket until it is closed.
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
			continue // about a packet sent before, or temporary
		default:
			return fmt.Errorf("receiving: %w", p.errno)
		}
		begin := time.Now()
		p.toSend = p.out[:0]
		for i := range p.receivedCount {
			s.answerPacket(ctx, conn, p, i, q, m)
		}
		for len(p.toSend) > 0 {
			if err := raw.Write(send); err != nil {
				return nil // closed
			}
			if p.errno != 0 {
				p.sentCount = 1 // skip the first packet, which cannot be sent: there may be no route to its client
			}
			p.toSend = p.toSend[p.sentCount:]
		}
		m.observe(p.zones[:p.receivedCount], time.Since(begin))
	}
}

func (s *Server) answerPacket(ctx context.Context, conn *net.UDPConn, p *packets, i int, q *query, m *counts) {
	if cap(p.answers[i]) > maxKeptBuffer {
		p.answers[i] = make([]byte, 0, minUDPSize)
	}
	p.zones[i] = zoneNone
	if p.in[i].header.Flags&unix.MSG_TRUNC != 0 {
		return // longer than any query
	}
	if !s.sources.allow(p.source(i)) {
		return
	}
	msg, todo := s.answer(q, p.received[i][:p.in[i].size], true, p.answers[i][:0], m)
	switch {
	case todo != nil:
		client := p.client(i)
		s.resolveAsync(ctx, q, todo, func(msg []byte) { conn.WriteToUDPAddrPort(msg, client) }, true, m)
	case msg != nil:
		p.zones[i] = q.zone
		p.answers[i] = msg
		p.answer(i, msg)
	}
}
