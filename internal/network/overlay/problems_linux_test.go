package overlay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestOverlap: a node with the pod CIDR of another is logged and gets an Event on its Node; all other nodes stay connected.
func TestOverlap(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t, 1500)
	a, b := w.pair(VXLAN)
	late := nodeObject("z-late", []string{"10.42.1.0/24"}, []string{"192.0.2.99"}) // the range of node a
	late.Annotations = map[string]string{BackendAnnotation: VXLAN, MACAnnotation: macOf("z-late").String()}
	if _, err := w.server.Client().CoreV1().Nodes().Create(context.Background(), late, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const text = "its range of pod addresses 10.42.1.0/24 overlaps one of node n1, which came first"
	w.event(t, "z-late", text)
	for _, m := range []*machine{a, b} {
		eventually(t, func() error {
			if !strings.Contains(m.log.String(), text) {
				return errors.New("not in the log: " + m.log.String())
			}
			return nil
		})
	}
	a.pod.reaches(t, b.podIP(false), a.podIP(false))
	b.pod.reaches(t, a.podIP(false), b.podIP(false))
	if strings.Count(b.log.String(), text) != 1 {
		t.Errorf("it is said again and again: %s", b.log)
	}
}

// event waits for an Event about a Node.
func (w *testCluster) event(t *testing.T, node, text string) {
	t.Helper()
	eventually(t, func() error {
		list, err := w.server.Client().CoreV1().Events("").List(context.Background(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + node})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if strings.Contains(e.Message, text) && e.Type == "Warning" {
				return nil
			}
		}
		return fmt.Errorf("no event on %s says %q", node, text)
	})
}

// TestNotOnSegment: host-gw reports the nodes that it cannot reach, and reaches the others.
func TestNotOnSegment(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t, 1500)
	a, b := w.add(1), w.add(2)
	far := nodeObject("far", []string{"10.42.9.0/24"}, []string{"203.0.113.9"})
	far.Annotations = map[string]string{BackendAnnotation: HostGW}
	if _, err := w.server.Client().CoreV1().Nodes().Create(context.Background(), far, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	a.join(HostGW, a.ip4)
	b.join(HostGW, b.ip4)
	w.event(t, a.Name, "pods 10.42.9.0/24 of node far cannot be reached: its address 203.0.113.9 is not on this node's segment")
	a.pod.reaches(t, b.podIP(false), a.podIP(false))
}

// TestForeignRoute: a foreign route to a node's range stays and is reported; other ranges are reached.
func TestForeignRoute(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t, 1500)
	a, b, c := w.add(1), w.add(2), w.add(3)
	theirs := func(eth0 netlink.Link) *netlink.Route {
		return &netlink.Route{LinkIndex: eth0.Attrs().Index, Dst: ipNet(netip.MustParsePrefix("10.42.2.0/24")), Gw: net.ParseIP("192.0.2.200"), Protocol: unix.RTPROT_STATIC}
	}
	a.Must(t, func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.RouteAdd(theirs(eth0))
	})
	a.join(VXLAN, a.ip4)
	b.join(VXLAN, b.ip4)
	c.join(VXLAN, c.ip4)
	a.pod.reaches(t, c.podIP(false), a.podIP(false))
	eventually(t, func() error {
		if !strings.Contains(a.log.String(), "there is already a route to 10.42.2.0/24 that is not skiff's") {
			return errors.New(a.log.String())
		}
		return nil
	})
	a.Must(t, func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.RouteDel(theirs(eth0)) // it was still there
	})
	a.pod.reaches(t, b.podIP(false), a.podIP(false))
}

// TestForeignVXLAN: another overlay's interface is not changed, and the conflict is reported.
func TestForeignVXLAN(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t, 1500)
	a := w.add(1)
	flannel := &netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "flannel.1"}, VxlanId: 1, Port: 8472, SrcAddr: net.ParseIP(a.ip4)}
	a.Must(t, func() error { return netlink.LinkAdd(flannel) })
	a.register(a.ip4)
	a.launch(VXLAN)
	eventually(t, func() error {
		if !strings.Contains(a.log.String(), "interface flannel.1 has VXLAN network 1 on UDP port 8472 already") {
			return errors.New(a.log.String())
		}
		return nil
	})
	a.Must(t, func() error { return netlink.LinkDel(flannel) }) // it was still there
	a.ready()
}

// TestAddressElsewhere: a node behind NAT, whose address is on none of its links, sends by its default route.
func TestAddressElsewhere(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t, 1500)
	a, b := w.add(1), w.add(2)
	a.Route(t, "0.0.0.0/0", b.ip4, "eth0")
	a.register("203.0.113.1")
	a.start(VXLAN)
	a.addPod()
	b.join(VXLAN, b.ip4)
	b.Route(t, "203.0.113.1/32", a.ip4, "eth0") // node a translates the address
	a.Must(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: ipNet(netip.MustParsePrefix("203.0.113.1/32")), Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST})
	})
	a.Must(t, func() error { return translate(netip.MustParseAddr("203.0.113.1")) })
	a.pod.reaches(t, b.podIP(false), a.podIP(false))
	b.pod.reaches(t, a.podIP(true), b.podIP(true))
}

// translate changes the source address of encapsulated packets that leave.
func translate(to netip.Addr) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := c.AddTable(&nftables.Table{Name: "translate", Family: nftables.TableFamilyIPv4})
	chain := c.AddChain(&nftables.Chain{Name: "out", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_UDP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint16(nil, defaultVXLANPort)},
		&expr.Immediate{Register: 1, Data: to.AsSlice()},
		&expr.NAT{Type: expr.NATTypeSourceNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1},
	}})
	return c.Flush()
}
