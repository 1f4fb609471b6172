package userspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"skiff/internal/network/proxy/model"
)

// testTimeout bounds every wait.
const testTimeout = 20 * time.Second

// node is a node with endpoints and clients in the same namespace. Traffic passes the real rules.
type node struct {
	t     *testing.T
	mode  *Mode
	state model.State
}

const nodeIP = "192.0.2.1"

var serviceIP = netip.MustParseAddr("10.43.0.1")

func newNode(t *testing.T, change func(*Limits)) *node {
	t.Helper()
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "n0"}, PeerName: "n1"} // nothing listens at the other end
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(veth) })
	peer, err := netlink.LinkByName("n1")
	if err != nil {
		t.Fatal(err)
	}
	address, _ := netlink.ParseAddr(nodeIP + "/24")
	err = errors.Join(netlink.AddrAdd(veth, address), netlink.LinkSetUp(veth), netlink.LinkSetUp(peer),
		netlink.RouteAdd(&netlink.Route{LinkIndex: veth.Index, Gw: net.ParseIP("192.0.2.2")}))
	if err != nil {
		t.Fatal(err)
	}
	limits := DefaultLimits()
	if change != nil {
		change(&limits)
	}
	n := &node{t: t, state: model.State{Ports: map[model.Key]*model.Port{}}}
	n.start(limits)
	t.Cleanup(func() {
		if err := errors.Join(n.mode.Close(), Clean()); err != nil {
			t.Error(err)
		}
	})
	return n
}

func (n *node) start(limits Limits) {
	n.t.Helper()
	m, err := NewWithLimits(model.Config{NodeIPs: []netip.Addr{netip.MustParseAddr(nodeIP)}}, limits)
	if err != nil {
		n.t.Fatal(err)
	}
	n.mode = m
	if err := m.Sync(context.Background(), &n.state, model.Changes{All: true}); err != nil {
		n.t.Fatal(err)
	}
}

// service sets the endpoints of the only Service.
func (n *node) service(protocol model.Protocol, affinity time.Duration, endpoints ...netip.AddrPort) string {
	n.t.Helper()
	p := &model.Port{
		Key: model.Key{Namespace: "default", Service: "web", Protocol: protocol, Family: model.IPv4}, ClusterIP: serviceIP, Port: 80,
		Affinity: affinity, HasAnyEndpoint: len(endpoints) > 0, Serving: endpoints,
	}
	for _, e := range endpoints {
		p.Cluster = append(p.Cluster, model.Endpoint{AddrPort: e, Local: true})
	}
	change := model.Change{Key: p.Key, Old: n.state.Ports[p.Key], New: p}
	n.state.Ports[p.Key] = p
	if err := n.mode.Sync(context.Background(), &n.state, model.Changes{Ports: []model.Change{change}}); err != nil {
		n.t.Fatal(err)
	}
	return netip.AddrPortFrom(serviceIP, 80).String()
}

func (n *node) pool(protocol model.Protocol) *pool {
	return n.mode.pools[poolName{model.Key{Namespace: "default", Service: "web", Protocol: protocol, Family: model.IPv4}, false}]
}

// endpoint returns the address of a TCP server that calls a function for each connection.
func endpoint(t *testing.T, serve func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.ParseIP(nodeIP)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.AcceptTCP()
			if err != nil {
				return
			}
			_ = conn.SetDeadline(time.Now().Add(testTimeout))
			go func() { defer conn.Close(); serve(conn) }()
		}
	}()
	return unmapped(l.Addr())
}

// named returns the address of a server that sends a name.
func named(t *testing.T, name string) netip.AddrPort {
	return endpoint(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, name) })
}

// nobody returns an address without a listener, where connections are refused.
func nobody(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp4", nodeIP+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return unmapped(l.Addr())
}

func dial(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", address, testTimeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	return conn.(*net.TCPConn)
}

// ask connects and returns what the server sends.
func ask(t *testing.T, address string) (string, error) {
	t.Helper()
	conn := dial(t, address)
	b, err := io.ReadAll(conn)
	return string(b), err
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for start := time.Now(); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > testTimeout {
			t.Fatal(fmt.Sprint("never: ", what))
		}
	}
}
