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
	// maxSockets bounds the UDP sockets that share an address with SO_REUSEPORT; there is one per processor.
	maxSockets = 16
	// readBuffer is the receive buffer of each UDP socket in bytes.
	readBuffer = 1 << 20
	// bindTimeout is how long binding is retried: an address may not be configured yet, or still be in use by the process before this one.
	bindTimeout       = 15 * time.Second
	bindRetryInterval = 100 * time.Millisecond
)

// listeners holds the sockets of a server.
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

// listen binds all addresses of Options.Listen. It returns nil, nil if ctx ends first.
func (s *Server) listen(ctx context.Context) (*listeners, error) {
	l := &listeners{}
	for _, address := range s.options.Listen {
		for begin := time.Now(); ; {
			err := l.add(ctx, address)
			if err == nil {
				break
			}
			wait := errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EADDRNOTAVAIL)
			if !wait || time.Since(begin) > bindTimeout {
				l.close()
				return nil, fmt.Errorf("the DNS server failed to listen on %v: %w", address, err)
			}
			select {
			case <-ctx.Done():
				l.close()
				return nil, nil
			case <-time.After(bindRetryInterval):
			}
		}
	}
	return l, nil
}

// add binds one address, over TCP and with as many UDP sockets as there are processors. Sockets with SO_REUSEPORT would also share the
// address with those of another program, so a socket without it is bound first, to find out whether the address is free.
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
	probe, err := (&net.ListenConfig{}).ListenPacket(ctx, udp, address.String())
	if err != nil {
		listener.Close()
		return err
	}
	probe.Close()
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
