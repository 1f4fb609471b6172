package overlay

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// TestPackets: pods of different nodes reach each other by their own addresses with every backend, with packets up to the MTU, unfragmented.
func TestPackets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		backend string
		mtu     int
	}{{VXLAN, 1450}, {HostGW, 1500}, {Auto, 1450}, {UDP, 1472}} {
		t.Run(c.backend, func(t *testing.T) {
			t.Parallel()
			w := newTestCluster(t, 1500)
			a, b := w.add(1), w.add(2)
			a.join(c.backend, a.ip4, a.ip6)
			b.join(c.backend, b.ip6, b.ip4) // in whichever order
			if a.overlay.MTU() != c.mtu || b.overlay.MTU() != c.mtu {
				t.Errorf("MTU %d and %d, want %d", a.overlay.MTU(), b.overlay.MTU(), c.mtu)
			}
			for _, v6 := range []bool{false, true} {
				a.pod.reaches(t, b.podIP(v6), a.podIP(v6))
				b.pod.reaches(t, a.podIP(v6), b.podIP(v6))
				a.checkMTU(t, b, v6)
				transfer(t, a.pod, b.podIP(v6), 2<<20)
			}
			if err := a.pod.ping(b.podIP(false)); err != nil {
				t.Errorf("ping: %v", err)
			}
			// A node reaches pods of other nodes, from the address of its overlay interface.
			from := a.ip4
			if c.backend == VXLAN || c.backend == UDP {
				from = "10.42.1.0"
			}
			a.reaches(t, b.podIP(false), from)
			// Addresses of nodes are outside the cluster CIDRs: packets to them are masqueraded.
			a.pod.reaches(t, b.ip4, a.ip4)
			b.pod.reaches(t, a.ip6, b.ip6)
			for _, m := range []*machine{a, b} {
				if got := m.snmp(t, "Ip", "FragCreates"); got != "0" {
					t.Errorf("%s cut %s packets", m.Name, got)
				}
			}
			// An address without a pod is unreachable, which the sender learns at once.
			if _, _, err := a.pod.dial("10.42.2.99"); !errors.Is(err, unix.EHOSTUNREACH) {
				t.Errorf("an address that no pod has: %v", err)
			}
		})
	}
}

// checkMTU checks that packets as large as the MTU pass unfragmented, and that larger ones are refused and not lost.
func (m *machine) checkMTU(t *testing.T, to *machine, v6 bool) {
	t.Helper()
	headers := ipv4Header + udpHeader
	if v6 {
		headers = ipv6Header + udpHeader
	}
	if err := m.pod.echo(to.podIP(v6), m.overlay.MTU()-headers); err != nil {
		t.Errorf("a packet of %d bytes: %v", m.overlay.MTU(), err)
	}
	if err := m.pod.echo(to.podIP(v6), m.overlay.MTU()-headers+1); !errors.Is(err, unix.EMSGSIZE) {
		t.Errorf("a packet of %d bytes: %v", m.overlay.MTU()+1, err)
	}
}

// transfer sends size bytes over TCP and reads them back.
func transfer(t *testing.T, from *namespace, to string, size int) {
	t.Helper()
	conn, _, err := from.dial(to)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	pour(t, conn, size)
}

func pour(t testing.TB, conn net.Conn, size int) {
	t.Helper()
	sent, got := make([]byte, size), make([]byte, size)
	rand.Read(sent)
	failed := make(chan error, 1)
	go func() {
		_, err := conn.Write(sent)
		failed <- err
	}()
	_, err := io.ReadFull(conn, got)
	if err != nil {
		conn.Close() // the other half is not to wait
	}
	if err := errors.Join(err, <-failed); err != nil || !bytes.Equal(sent, got) {
		t.Errorf("%d bytes to %s: %v, equal: %v", size, conn.RemoteAddr(), err, bytes.Equal(sent, got))
	}
}

// exchange sends a line on a connection and gets it back.
func exchange(conn io.ReadWriter, i int) error {
	line := fmt.Sprintf("line %08d\n", i)
	if _, err := io.WriteString(conn, line); err != nil {
		return err
	}
	got := make([]byte, len(line))
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if string(got) != line {
		return fmt.Errorf("sent %q, got %q", line, got)
	}
	return nil
}

// TestLoss: connections survive the loss of one packet in ten.
func TestLoss(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t, 1500)
	a, b := w.pair(VXLAN)
	conn, _, err := a.pod.dial(b.podIP(false))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	b.Must(t, func() error { return drop(10) })
	pour(t, conn, 1<<20)
	b.Must(t, func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		rules, err := c.GetRules(&nftables.Table{Name: "loss", Family: nftables.TableFamilyIPv4}, &nftables.Chain{Name: "in"})
		if err != nil {
			return err
		}
		for _, e := range rules[0].Exprs {
			if n, ok := e.(*expr.Counter); ok && n.Packets == 0 {
				t.Error("no packet was lost")
			}
		}
		return nil
	})
}

// drop drops one of so many packets that arrive on eth0.
func drop(of uint32) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := c.AddTable(&nftables.Table{Name: "loss", Family: nftables.TableFamilyIPv4})
	chain := c.AddChain(&nftables.Chain{Name: "in", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw})
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: append([]byte("eth0"), make([]byte, 12)...)},
		&expr.Numgen{Register: 1, Type: unix.NFT_NG_INCREMENTAL, Modulus: of}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: make([]byte, 4)},
		&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop},
	}})
	return c.Flush()
}

// TestIPv6Nodes: nodes without an IPv4 address reach each other by IPv6, and still carry IPv4 pods.
func TestIPv6Nodes(t *testing.T) {
	for _, c := range []struct {
		backend string
		mtu     int
	}{{VXLAN, 1430}, {UDP, 1452}} {
		t.Run(c.backend, func(t *testing.T) {
			t.Parallel()
			w := newTestCluster(t, 1500)
			a, b := w.add(1), w.add(2)
			for _, m := range []*machine{a, b} {
				m.ip4 = m.ip6
				m.join(c.backend, m.ip6)
			}
			if a.overlay.MTU() != c.mtu {
				t.Errorf("MTU %d, want %d", a.overlay.MTU(), c.mtu)
			}
			for _, v6 := range []bool{false, true} {
				a.pod.reaches(t, b.podIP(v6), a.podIP(v6))
				a.checkMTU(t, b, v6)
				transfer(t, a.pod, b.podIP(v6), 1<<20)
			}
		})
	}
}

// BenchmarkPodToPod sends megabytes from a pod to one on another node and back.
func BenchmarkPodToPod(b *testing.B) {
	for _, backend := range []string{HostGW, VXLAN, UDP} {
		b.Run(backend, func(b *testing.B) {
			w := newTestCluster(b, 1500)
			one, two := w.pair(backend)
			conn, _, err := one.pod.dial(two.podIP(false))
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			b.SetBytes(1 << 20)
			for b.Loop() {
				pour(b, conn, 1<<20)
			}
		})
	}
}
