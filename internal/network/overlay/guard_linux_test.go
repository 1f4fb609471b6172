package overlay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
)

// inbox holds the packets that a pod has received on UDP port 9.
type inbox struct {
	mu    sync.Mutex
	texts map[string]bool
}

func (m *machine) inbox(t *testing.T) *inbox {
	t.Helper()
	in := &inbox{texts: map[string]bool{}}
	m.pod.ServePackets(t, "udp", ":9", func(packet []byte, _ net.Addr) []byte {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.texts[string(packet)] = true
		return nil
	})
	return in
}

func (in *inbox) has(text string) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.texts[text]
}

// inject sends an encapsulated packet to a node, with the inner source of a pod of node 2 and the node's pod as destination.
func (s *namespace) inject(t *testing.T, backend string, to *machine, text string) {
	t.Helper()
	s.Must(t, func() error {
		port, packet := defaultVXLANPort, udpPacket(netip.MustParseAddr("10.42.2.2"), netip.MustParseAddr(to.podIP(false)), text)
		if backend == UDP {
			port = defaultUDPPort
		} else {
			own := macOf(to.Name)
			frame := slices.Concat([]byte{8, 0, 0, 0, 0, 0, defaultVNI, 0}, own[:], []byte{2, 0, 0, 0, 0, 1}, []byte{8, 0})
			packet = append(frame, packet...)
		}
		conn, err := net.Dial("udp", net.JoinHostPort(to.ip4, fmt.Sprint(port)))
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write(packet)
		return err
	})
}

// udpPacket returns an IPv4 packet to UDP port 9.
func udpPacket(from, to netip.Addr, text string) []byte {
	p := make([]byte, ipv4Header+udpHeader, ipv4Header+udpHeader+len(text))
	p[0], p[8], p[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(p[2:], uint16(cap(p)))
	copy(p[12:], from.AsSlice())
	copy(p[16:], to.AsSlice())
	var sum uint32
	for i := 0; i < ipv4Header; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(p[10:], ^uint16(sum+sum>>16))
	binary.BigEndian.PutUint16(p[ipv4Header:], 1234)
	binary.BigEndian.PutUint16(p[ipv4Header+2:], 9)
	binary.BigEndian.PutUint16(p[ipv4Header+4:], uint16(udpHeader+len(text))) // without a checksum
	return append(p, text...)
}

// TestOutsiders: an encapsulated packet reaches a pod only if its source is a node: not from a machine that is not a node yet, nor from a pod of a node, nor from a former
// node, nor from the former address of a node, nor while skiff is stopped or after it has started again, nor after somebody has removed the rules.
func TestOutsiders(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		backend string
		v6      bool // the underlay is IPv6
	}{{VXLAN, false}, {VXLAN, true}, {Auto, false}, {UDP, false}} {
		t.Run(fmt.Sprint(c.backend, c.v6), func(t *testing.T) {
			t.Parallel()
			w := newTestCluster(t, 1500)
			a, b, x := w.add(1), w.add(2), w.add(9)
			if c.v6 {
				for _, m := range []*machine{a, b, x} {
					m.ip4 = m.ip6
				}
			}
			for _, m := range []*machine{a, b} {
				m.join(c.backend, m.ip4)
			}
			comment := (&kernel{settings: settings{backend: c.backend}, vni: defaultVNI, vxlanPort: defaultVXLANPort, udpPort: defaultUDPPort}).guardComment()
			in := a.inbox(t)
			round := 0
			// arrives sends packets from a source and from node b by turns: once one from node b has arrived, one sent before it would have too.
			arrives := func(what string, from *namespace, want bool) {
				t.Helper()
				round++
				theirs, nodes := fmt.Sprint("theirs-", round), fmt.Sprint("node's-", round)
				eventually(t, func() error {
					from.inject(t, c.backend, a, theirs)
					b.inject(t, c.backend, a, nodes)
					for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
						if in.has(nodes) && (!want || in.has(theirs)) {
							return nil
						}
					}
					return fmt.Errorf("%s: node's packet arrived: %v, the other: %v", what, in.has(nodes), in.has(theirs))
				})
				if in.has(theirs) != want {
					t.Errorf("%s: the packet arrived: %v", what, in.has(theirs))
				}
			}
			arrives("an outsider", x.namespace, false)
			arrives("a pod of a node", b.pod, false) // which is masqueraded: it has the node's address
			x.join(c.backend, x.ip4)
			arrives("a node that joined", x.namespace, true)
			w.delete(x)
			a.without(t, "10.42.9.0/24")
			arrives("a node that was deleted", x.namespace, false)
			x.stop()

			a.stop()
			if c.backend != UDP { // the udp backend receives nothing while skiff is stopped
				arrives("an outsider while skiff is away", x.namespace, false)
			}
			a.start(c.backend)
			arrives("an outsider after a restart", x.namespace, false)
			a.Must(t, removeGuard)
			eventually(t, func() error {
				return a.Do(func() error {
					_, err := readGuard(comment)
					return err
				})
			})
			arrives("an outsider after the rules were removed", x.namespace, false)

			if c.v6 {
				return
			}
			old := b.ip4
			b.renumber(t, "192.0.2.77")
			w.setAddresses(b, b.ip4)
			eventually(t, func() error {
				return a.Do(func() error {
					found, err := readGuard(comment)
					if found[netip.MustParseAddr(old)] {
						err = fmt.Errorf("packets from %s are still taken", old)
					}
					return err
				})
			})
			x.renumber(t, old)
			arrives("an outsider with the address that a node had", x.namespace, false)
		})
	}
}

// TestGuardIsOurs: host-gw has no guard, and another VNI on the same port is not affected by it.
func TestGuardIsOurs(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t, 1500)
	a := w.add(1)
	a.register(a.ip4)
	tables := func() (names []string) {
		a.Must(t, func() error {
			c, err := nftables.New()
			if err != nil {
				return err
			}
			list, err := c.ListTables()
			for _, table := range list {
				names = append(names, table.Name)
			}
			return err
		})
		return names
	}
	a.start(VXLAN)
	if !slices.Contains(tables(), guardTable) {
		t.Errorf("with vxlan there are the tables %v", tables())
	}
	// A VXLAN with another VNI, between this machine and one that is not a node.
	x := w.add(9)
	for _, side := range []struct {
		m           *machine
		own, remote string
	}{{a, "198.51.100.1", x.ip4}, {x, "198.51.100.2", a.ip4}} {
		side.m.Must(t, func() error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = "theirs"
			return netlink.LinkAdd(&netlink.Vxlan{LinkAttrs: attrs, VxlanId: 77, Port: defaultVXLANPort, Group: net.ParseIP(side.remote), Learning: true})
		})
		side.m.Up(t, "theirs", side.own+"/24")
	}
	a.serve(t)
	x.reaches(t, "198.51.100.1", "198.51.100.2")
	a.stop()
	a.start(HostGW)
	eventually(t, func() error {
		if slices.Contains(tables(), guardTable) {
			return errors.New("the table is still there")
		}
		return nil
	})
}
