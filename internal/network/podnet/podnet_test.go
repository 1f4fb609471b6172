//go:build linux

package podnet

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"skiff/internal/network/networktest"
)

// namespace is a network namespace with clients and servers.
type namespace struct{ *networktest.Namespace }

func newNamespace(t *testing.T, name string) *namespace { return &namespace{networktest.New(t, name)} }

// connect links two namespaces, each with addresses of both families.
func connect(t *testing.T, a, b *namespace, nameA, nameB string, addressesA, addressesB []string) {
	t.Helper()
	networktest.Link(t, a.Namespace, b.Namespace, nameA, nameB, 0)
	a.Up(t, nameA, addressesA...)
	b.Up(t, nameB, addressesB...)
}

// testNode is a node with pods and a host outside, connected as ptp does.
type testNode struct {
	node, outside *namespace
	pods          []*namespace
}

func newTestNode(t *testing.T, pods int) *testNode {
	t.Helper()
	w := &testNode{node: newNamespace(t, "node"), outside: newNamespace(t, "outside")}
	connect(t, w.node, w.outside, "eth0", "eth0", []string{"192.0.2.1/24", "2001:db8:1::1/64"}, []string{"192.0.2.2/24", "2001:db8:1::2/64"})
	for i := range pods {
		pod := newNamespace(t, fmt.Sprint("pod", i))
		link := fmt.Sprint("veth", i)
		connect(t, w.node, pod, link, "eth0", []string{"10.42.0.1/32", "fd42::1/128"}, []string{podIP(i) + "/32", pod6(i) + "/128"})
		w.node.Route(t, podIP(i)+"/32", "", link)
		w.node.Route(t, pod6(i)+"/128", "", link)
		pod.Route(t, "10.42.0.1/32", "", "eth0")
		pod.Route(t, "0.0.0.0/0", "10.42.0.1", "eth0")
		pod.Route(t, "fd42::1/128", "", "eth0")
		pod.Route(t, "::/0", "fd42::1", "eth0")
		w.pods = append(w.pods, pod)
	}
	return w
}

func podIP(i int) string { return fmt.Sprintf("10.42.0.%d", i+2) }
func pod6(i int) string  { return fmt.Sprintf("fd42::%d", i+2) }

// serve answers on an address with the namespace's name and the source address that it sees.
func (p *namespace) serve(t *testing.T, network, address string) {
	t.Helper()
	answer := func(from net.Addr) string { return p.Name + " " + host(from) + "\n" }
	if strings.HasPrefix(network, "udp") {
		p.ServePackets(t, network, address, func(_ []byte, from net.Addr) []byte { return []byte(answer(from)) })
		return
	}
	p.Serve(t, network, address, func(conn net.Conn) { io.WriteString(conn, answer(conn.RemoteAddr())) })
}

func host(a net.Addr) string {
	h, _, _ := net.SplitHostPort(a.String())
	return h
}

// asks connects to an address and returns the name of the server and the source address that it saw.
// A namespace waits for an answer that should come long enough for TCP to repeat a packet twice, after one second and after two more: the kernel drops
// packets while it looks for a neighbour. It waits no longer than noAnswer where none should come.
const (
	answerTimeout = 5 * time.Second
	noAnswer      = time.Second
)

func (p *namespace) asks(network, address string) (answer string, err error) {
	return p.asksFrom(network, "", address, answerTimeout)
}

func (p *namespace) asksFrom(network, local, address string, timeout time.Duration) (answer string, err error) {
	err = p.Do(func() error {
		d := net.Dialer{Timeout: timeout}
		if strings.HasPrefix(network, "udp") && local != "" {
			from, err := net.ResolveUDPAddr(network, local)
			if err != nil {
				return err
			}
			d.LocalAddr = from
		}
		conn, err := d.Dial(network, address)
		if err != nil {
			return err
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(timeout))
		if strings.HasPrefix(network, "udp") {
			if _, err := conn.Write([]byte("?")); err != nil {
				return err
			}
		}
		answer, err = bufio.NewReader(conn).ReadString('\n')
		answer = strings.TrimSpace(answer)
		return err
	})
	return answer, err
}

func (p *namespace) expects(t *testing.T, network, address, want string) {
	t.Helper()
	if got, err := p.asks(network, address); err != nil || got != want {
		t.Errorf("%s asks %s %s: %q, %v, want %q", p.Name, network, address, got, err, want)
	}
}

func (p *namespace) expectsNothing(t *testing.T, network, address string) {
	t.Helper()
	if got, err := p.asksFrom(network, "", address, noAnswer); err == nil {
		t.Errorf("%s asks %s %s: %q, want no answer", p.Name, network, address, got)
	}
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, p := range list {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func addrs(list ...string) (out []netip.Addr) {
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

// TestMasquerade: traffic that leaves the pod CIDRs is masqueraded; traffic within them is not.
func TestMasquerade(t *testing.T) {
	w := newTestNode(t, 2)
	for _, p := range append(w.pods, w.outside, w.node) {
		p.serve(t, "tcp", ":80")
		p.serve(t, "udp4", "0.0.0.0:53")
	}
	w.pods[0].expectsNothing(t, "tcp", "192.0.2.2:80") // forwarding is off, and the host outside has no route back
	for range 2 {                                      // a second time changes nothing
		w.node.Must(t, func() error { return EnsureMasquerade(prefixes("10.42.0.0/16", "fd42::/48")) })
	}
	w.pods[0].expects(t, "tcp", "192.0.2.2:80", "outside 192.0.2.1")
	w.pods[0].expects(t, "udp4", "192.0.2.2:53", "outside 192.0.2.1")
	w.pods[0].expects(t, "tcp", "[2001:db8:1::2]:80", "outside 2001:db8:1::1")
	w.pods[0].expects(t, "tcp", podIP(1)+":80", "pod1 "+podIP(0))
	w.pods[1].expects(t, "tcp", "["+pod6(0)+"]:80", "pod0 "+pod6(1))
	w.pods[1].expects(t, "tcp", "192.0.2.1:80", "node "+podIP(1))
	w.node.expects(t, "tcp", podIP(0)+":80", "pod0 10.42.0.1")
}

func TestHostPorts(t *testing.T) {
	w := newTestNode(t, 3)
	w.node.Must(t, func() error { return EnsureMasquerade(prefixes("10.42.0.0/16", "fd42::/48")) })
	for _, p := range w.pods {
		p.serve(t, "tcp", ":8080")
		p.serve(t, "udp", ":53")
	}
	w.node.serve(t, "tcp4", "127.0.0.1:9999")
	var h HostPorts
	ports := []Mapping{{Protocol: "TCP", HostPort: 80, ContainerPort: 8080}, {Protocol: "UDP", HostPort: 53, ContainerPort: 53}, {ContainerPort: 1}}
	w.node.Must(t, func() error { return h.Set("a", addrs(podIP(0), pod6(0)), ports) })

	w.outside.expects(t, "tcp", "192.0.2.1:80", "pod0 192.0.2.2")
	w.outside.expects(t, "udp", "192.0.2.1:53", "pod0 192.0.2.2")
	w.outside.expects(t, "tcp", "[2001:db8:1::1]:80", "pod0 2001:db8:1::2")
	w.outside.expectsNothing(t, "tcp", "192.0.2.1:8080")
	w.node.expects(t, "tcp", "192.0.2.1:80", "pod0 192.0.2.1")
	// Loopback ports stay the node's own, whether or not a process listens there.
	w.node.expectsNothing(t, "tcp", "127.0.0.1:80")
	w.node.expectsNothing(t, "tcp", "[::1]:80")
	w.node.serve(t, "tcp4", "127.0.0.1:80")
	w.node.serve(t, "tcp6", "[::1]:80")
	w.node.serve(t, "udp4", "127.0.0.1:53")
	w.node.expects(t, "tcp", "127.0.0.1:80", "node 127.0.0.1")
	w.node.expects(t, "tcp", "[::1]:80", "node ::1")
	w.node.expects(t, "udp", "127.0.0.1:53", "node 127.0.0.1")
	w.pods[1].expects(t, "tcp", "192.0.2.1:80", "pod0 "+podIP(1))
	w.pods[0].expects(t, "tcp", "192.0.2.1:80", "pod0 10.42.0.1") // to itself through the node
	w.pods[0].expects(t, "tcp", "[2001:db8:1::1]:80", "pod0 fd42::1")

	// The same port at another address belongs to another pod, also at a loopback address that a mapping names; the mapping without an address has the rest.
	byAddress := []Mapping{{Protocol: "TCP", HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: 80, ContainerPort: 8080}}
	w.node.Must(t, func() error { return h.Set("b", addrs(podIP(1)), byAddress) })
	w.node.expects(t, "tcp", "127.0.0.1:80", "pod1 10.42.0.1")
	w.outside.expects(t, "tcp", "192.0.2.1:80", "pod0 192.0.2.2")

	// Although a pod's link accepts loopback sources, packets to loopback addresses that come from it are dropped.
	w.pods[1].Route(t, "127.0.0.1/32", "10.42.0.1", "eth0")
	w.pods[1].Must(t, func() error {
		return errors.Join(writeSysctl("net/ipv4/conf/all/route_localnet", "1"), dropLocal("127.0.0.1/8"))
	})
	w.pods[1].expectsNothing(t, "tcp", "127.0.0.1:9999")

	// The port moves to another pod while the one that had it is being deleted. A UDP client whose packets went to the first is
	// answered by the second.
	from := "192.0.2.2:4444"
	if got, err := w.outside.asksFrom("udp", from, "192.0.2.1:53", answerTimeout); err != nil || got != "pod0 192.0.2.2" {
		t.Errorf("before: %q, %v", got, err)
	}
	w.node.Must(t, func() error { return h.Set("c", addrs(podIP(2)), ports) })
	if got, err := w.outside.asksFrom("udp", from, "192.0.2.1:53", answerTimeout); err != nil || got != "pod2 192.0.2.2" {
		t.Errorf("after: %q, %v", got, err)
	}
	w.node.Must(t, func() error { return h.Remove("a") })
	w.outside.expects(t, "tcp", "192.0.2.1:80", "pod2 192.0.2.2")

	// After a restart the host ports are restored.
	var again HostPorts
	w.node.Must(t, func() error { return again.Restore(map[string]Ports{"c": {addrs(podIP(2)), ports}}) })
	w.outside.expects(t, "tcp", "192.0.2.1:80", "pod2 192.0.2.2")
	w.node.expects(t, "tcp", "127.0.0.1:80", "node 127.0.0.1")
	w.node.Must(t, func() error { return errors.Join(again.Remove("c"), again.Remove("never")) })
	w.outside.expectsNothing(t, "tcp", "192.0.2.1:80")
	w.node.Must(t, func() error { return noTables() })
}

func TestHostPortsRefused(t *testing.T) {
	w := newTestNode(t, 1)
	w.pods[0].serve(t, "tcp", ":8080")
	var h HostPorts
	good := []Mapping{{Protocol: "TCP", HostPort: 80, ContainerPort: 8080}}
	w.node.Must(t, func() error { return h.Set("a", addrs(podIP(0)), good) })
	if err := w.node.Do(func() error { return h.Set("a", addrs(podIP(0)), []Mapping{{Protocol: "ICMP", HostPort: 1}}) }); err == nil {
		t.Error("ICMP has no ports")
	}
	w.node.expects(t, "tcp", "192.0.2.1:80", "pod0 192.0.2.1") // the mappings before are unchanged
}

func TestManyHostPorts(t *testing.T) {
	w := newTestNode(t, 1)
	w.pods[0].serve(t, "tcp", ":8080")
	var h HostPorts
	var ports []Mapping
	for i := range 3000 {
		ports = append(ports, Mapping{Protocol: "TCP", HostPort: uint16(10000 + i), ContainerPort: 8080})
	}
	w.node.Must(t, func() error { return h.Set("a", addrs(podIP(0)), ports) })
	for _, port := range []int{10000, 11234, 12999} {
		w.node.expects(t, "tcp", fmt.Sprint("192.0.2.1:", port), "pod0 192.0.2.1")
	}
}

// dropLocal removes an address from the loopback link, so that packets to it leave the namespace.
func dropLocal(address string) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(address)
	return errors.Join(err, netlink.AddrDel(lo, a))
}

func noTables() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	tables, err := c.ListTables()
	for _, t := range tables {
		if t.Name != masqueradeTable {
			err = errors.Join(err, fmt.Errorf("table %s is left", t.Name))
		}
	}
	return err
}

func TestClean(t *testing.T) {
	w := newTestNode(t, 2)
	c := Config{Dir: t.TempDir(), State: filepath.Join(t.TempDir(), "ipam"), PodCIDRs: prefixes("10.42.0.0/24")}
	if err := os.MkdirAll(filepath.Join(c.State, NetworkName), 0o700); err != nil {
		t.Fatal(err)
	}
	var h HostPorts
	w.node.Must(t, func() error {
		return errors.Join(c.Write(), EnsureMasquerade(c.PodCIDRs), h.Set("a", addrs(podIP(0)), []Mapping{{HostPort: 80, ContainerPort: 80}}),
			os.WriteFile(filepath.Join(c.Dir, "10-mine.conf"), []byte(`{"name":"podnet-test","type":"bridge","bridge":"mine0"}`), 0o644),
			netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "mine0"}}),
			netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "other0"}}))
	})
	for range 2 { // cleaning twice is not an error
		w.node.Must(t, c.Clean)
	}
	var left []string
	w.node.Must(t, func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			left = append(left, l.Attrs().Name)
		}
		return errors.Join(err, noTables())
	})
	got := strings.Join(left, " ")
	if strings.Contains(got, "veth") || strings.Contains(got, "mine0") || !strings.Contains(got, "other0") || !strings.Contains(got, "eth0") {
		t.Errorf("links are left: %s", got)
	}
	if entries, err := os.ReadDir(c.Dir); err != nil || len(entries) != 1 || entries[0].Name() != "10-mine.conf" {
		t.Errorf("configurations are left: %v, %v", entries, err)
	}
	if _, err := os.Stat(c.State); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("addresses are left: %v", err)
	}
}

func TestConflist(t *testing.T) {
	c := Config{Dir: filepath.Join(t.TempDir(), "net.d"), State: "/state", PodCIDRs: prefixes("10.42.3.0/24", "fd42:3::/64"), MTU: 1400}
	for range 2 {
		if err := c.Write(); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(filepath.Join(c.Dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"name": "skiff"`, `"type": "ptp"`, `"mtu": 1400`, `"subnet": "10.42.3.0/24"`, `"subnet": "fd42:3::/64"`, `"dst": "::/0"`, `"dataDir": "/state"`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s is not in\n%s", want, data)
		}
	}
	if entries, _ := os.ReadDir(c.Dir); len(entries) != 1 {
		t.Errorf("more files than one: %v", entries)
	}
	c.Socket = "/run/x/network/cni.sock"
	if err := c.Write(); err != nil {
		t.Fatal(err)
	}
	want := `{"cniVersion":"1.0.0","name":"skiff","plugins":[{"mtu":1400,"ranges":["10.42.3.0/24","fd42:3::/64"],"socket":"/run/x/network/cni.sock","type":"skiff"}]}`
	var compact bytes.Buffer
	if data, err := os.ReadFile(filepath.Join(c.Dir, fileName)); err != nil || json.Compact(&compact, data) != nil || compact.String() != want {
		t.Errorf("with a socket the configuration is %s, %v", data, err)
	}
	if err := (Config{Dir: c.Dir}).Write(); err == nil {
		t.Error("a node without a range has no network")
	}
}
