package userspace

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"syscall"

	"skiff/internal/network/proxy/model"
)

// poolName identifies a pool: all endpoints of a Port, or those on this node.
type poolName struct {
	key   model.Key
	local bool
}

// pool is a listener and the endpoints that it balances over.
type pool struct {
	name     poolName
	balancer balancer
	at       netip.AddrPort // the address of the listener
	tcp      *net.TCPListener
	udp      *relay
}

// open returns a pool that listens on an address of this node.
func (m *Mode) open(name poolName, address netip.Addr) (*pool, error) {
	p := &pool{name: name}
	p.balancer.room = &m.clientRoom
	var failed error
	for _, port := range name.ports() {
		if failed = m.listen(p, netip.AddrPortFrom(address, port)); failed == nil {
			return p, nil
		}
		if !errors.Is(failed, syscall.EADDRINUSE) {
			break
		}
	}
	return nil, fmt.Errorf("failed to listen for service port %s: %w", name.key, failed)
}

func (m *Mode) listen(p *pool, at netip.AddrPort) error {
	switch p.name.key.Protocol {
	case model.TCP:
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		p.tcp, p.at = l, unmapped(l.Addr())
		m.wg.Go(func() { m.accept(p) })
	case model.UDP:
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		p.udp, p.at = newRelay(m, p, conn), unmapped(conn.LocalAddr())
		m.wg.Go(p.udp.run)
	default:
		return fmt.Errorf("protocol %s is not supported", p.name.key.Protocol)
	}
	return nil
}

func unmapped(a net.Addr) netip.AddrPort {
	at := netip.MustParseAddrPort(a.String())
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
}

// The range of listeners' ports: above node ports, in the kernel's default range of ephemeral ports.
const firstPort, lastPort = 32768, 60999

// ports returns the ports to try. They are derived from the name, so that rules of an earlier run lead to the right listener.
func (n poolName) ports() []uint16 {
	h := fnv.New32a()
	fmt.Fprint(h, n.key, n.local)
	sum := h.Sum32()
	var out []uint16
	for range 8 {
		out = append(out, uint16(firstPort+sum%(lastPort-firstPort+1)))
		sum = sum*16777619 + 1
	}
	return append(out, 0) // any free port free port
}

// close closes the listener. Open connections go on, as they do in other modes.
func (p *pool) close() {
	if p.tcp != nil {
		_ = p.tcp.Close()
	}
	if p.udp != nil {
		p.udp.close()
	}
	p.balancer.close()
}
