package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"syscall"
	"time"
)

const (
	// maxSockets is how many sockets share an address at most; there is one per processor.
	maxSockets = 16
	// readBuffer is how many bytes of packets may wait for each socket's receiver.
	readBuffer = 1 << 20
	// An address may take a moment to be there, or to be free of whoever used it before.
	bindPatience = 15 * time.Second
	bindAgain    = 100 * time.Millisecond
)

// listeners are what a server listens with.
type listeners struct {
	udp       []*net.UDPConn
	tcp       []net.Listener
	addresses []netip.AddrPort
}

func (l *listeners) close() {
	for _, c := range l.udp {
		c.Close()
	}
	for _, t := range l.tcp {
		t.Close()
	}
}

// listen listens on all addresses. It returns nothing if ctx ends first.
func (s *Server) listen(ctx context.Context) (*listeners, error) {
	l := &listeners{}
	for _, address := range s.options.Listen {
		for begin := time.Now(); ; {
			err := l.add(ctx, address)
			if err == nil {
				break
			}
			wait := errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EADDRNOTAVAIL)
			if !wait || time.Since(begin) > bindPatience {
				l.close()
				return nil, fmt.Errorf("the name server cannot listen on %v: %w", address, err)
			}
			select {
			case <-ctx.Done():
				l.close()
				return nil, nil
			case <-time.After(bindAgain):
			}
		}
	}
	return l, nil
}

// add listens on one address, over TCP and with as many UDP sockets as there are processors. Sockets that share an address would share it with
// those of another program too: that is tried first with one that does not share.
func (l *listeners) add(ctx context.Context, address netip.AddrPort) error {
	udp, tcp := "udp6", "tcp6"
	if address.Addr().Unmap().Is4() {
		udp, tcp = "udp4", "tcp4"
		address = netip.AddrPortFrom(address.Addr().Unmap(), address.Port())
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, tcp, address.String())
	if err != nil {
		return err
	}
	address = netip.AddrPortFrom(address.Addr(), listener.Addr().(*net.TCPAddr).AddrPort().Port())
	alone, err := (&net.ListenConfig{}).ListenPacket(ctx, udp, address.String())
	if err != nil {
		listener.Close()
		return err
	}
	alone.Close()
	var conns []*net.UDPConn
	for range sockets() {
		conn, err := (&net.ListenConfig{Control: shareAddress}).ListenPacket(ctx, udp, address.String())
		if err != nil {
			for _, c := range conns {
				c.Close()
			}
			listener.Close()
			return err
		}
		udp := conn.(*net.UDPConn)
		udp.SetReadBuffer(readBuffer) // or as much as the kernel allows
		conns = append(conns, udp)
	}
	l.udp, l.tcp, l.addresses = append(l.udp, conns...), append(l.tcp, listener), append(l.addresses, address)
	return nil
}

func sockets() int {
	if !sharesAddresses {
		return 1
	}
	return min(runtime.GOMAXPROCS(0), maxSockets)
}
