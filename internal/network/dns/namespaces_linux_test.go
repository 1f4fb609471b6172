package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skiff/internal/network/networktest"
)

// TestPodsResolve queries the DNS server of a node from a pod, in another network namespace: with packets, and with the resolver of
// the C library, which searches the pod's domains as its resolv.conf says.
func TestPodsResolve(t *testing.T) {
	const nodeIP, podIP = "192.0.2.1", "192.0.2.2"
	node, pod := networktest.New(t, "node"), networktest.New(t, "pod")
	networktest.Link(t, node, pod, "veth0", "eth0", 0)
	node.Up(t, "veth0", nodeIP+"/24")
	pod.Up(t, "eth0", podIP+"/24")
	external := startUpstream(t)
	o := asNode(newCluster(t, nodeIP), external.addr)
	server := netip.MustParseAddrPort(nodeIP + ":53") // the port that the C library queries
	o.Listen, o.PodCIDRs = []netip.AddrPort{server}, []netip.Prefix{netip.MustParsePrefix(podIP + "/32")}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := node.Do(func() error { return s.Run(ctx) }); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	if err := s.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	for question, want := range map[string]string{
		"web.shop.svc.cluster.local. A": " A 10.0.0.20", "web.shop.svc.cluster.local. A tcp": " A 10.0.0.20", "www.example.com. A": " A 192.0.2.80", "missing.shop.svc.cluster.local. A": "NameError",
		"20.0.0.10.in-addr.arpa. PTR": "PTR web.shop.svc.cluster.local.",
	} {
		packet, tcp := packetOf(t, question)
		var answer []byte
		if err := pod.Do(func() (err error) { answer, err = exchangePacket(server, packet, tcp); return err }); err != nil || !strings.Contains(textOf(answer), want) {
			t.Errorf("%s: %v %s", question, err, textOf(answer))
		}
	}

	conf := filepath.Join(t.TempDir(), "resolv.conf")
	text := "nameserver " + nodeIP + "\nsearch shop.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n"
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	getent := func(database, name string) string {
		cmd := exec.Command("sh", "-c", `mount --make-rprivate / && mount --bind "$1" /etc/resolv.conf && exec getent "$2" "$3"`, "sh", conf, database, name)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
		var out []byte
		err := pod.Do(func() (err error) { out, err = cmd.CombinedOutput(); return err })
		var addresses []string
		for line := range strings.Lines(string(out)) {
			if words := strings.Fields(line); database == "hosts" && len(words) > 1 {
				addresses = append(addresses, words[1])
			} else if len(words) > 0 && !slices.Contains(addresses, words[0]) {
				addresses = append(addresses, words[0])
			}
		}
		slices.Sort(addresses)
		if err != nil {
			return fmt.Sprintf("%v %s", err, out)
		}
		return strings.Join(addresses, " ")
	}
	for _, c := range []struct{ database, name, want string }{
		{"ahostsv4", "web", "10.0.0.20"}, {"ahostsv4", "web.shop", "10.0.0.20"}, {"ahostsv4", "kubernetes.default", "10.0.0.1"}, {"ahostsv4", "web.shop.svc.cluster.local", "10.0.0.20"},
		{"ahostsv4", "db-0.db", "10.42.0.6"}, {"ahostsv4", "db", "10.42.0.6 10.42.1.6 10.42.3.6"}, {"ahostsv4", "outside", "192.0.2.80"}, {"ahostsv4", "www.example.com", "192.0.2.80"},
		{"ahostsv4", "1-2-3-4.shop.pod", "1.2.3.4"}, {"hosts", "10.0.0.20", "web.shop.svc.cluster.local"}, {"ahostsv4", "missing", "exit status 2 "},
	} {
		if got := getent(c.database, c.name); got != c.want {
			t.Errorf("getent %s %s: %q, not %q", c.database, c.name, got, c.want)
		}
	}
	if many := len(strings.Fields(getent("ahostsv4", "many"))); many != 32 { // needs TCP
		t.Errorf("%d addresses of many", many)
	}
}

// TestWhoIsAnswered: a node's DNS server answers pods of all nodes and the node itself, over UDP and TCP, and drops queries from any other source.
func TestWhoIsAnswered(t *testing.T) {
	const nodeIP, nodeIP6 = "192.0.2.1", "2001:db8::1"
	node, wire := networktest.New(t, "node"), networktest.New(t, "wire")
	networktest.Link(t, node, wire, "eth0", "eth0", 0)
	node.Up(t, "eth0", nodeIP+"/24", nodeIP6+"/64", "192.0.2.9/24")
	sources := []string{"10.42.7.2", "192.0.2.66", "10.41.255.255", "10.43.0.1", "fd42::2", "2001:db8::66", "fd43::2"}
	for _, ip := range sources {
		bits := "/32"
		if strings.Contains(ip, ":") {
			bits = "/128"
		}
		wire.Address(t, "eth0", ip+bits)
	}
	wire.Up(t, "eth0", "192.0.2.2/24", "2001:db8::2/64")
	node.Route(t, "10.0.0.0/8", "", "eth0")
	node.Route(t, "fd00::/8", "", "eth0")
	external := startUpstream(t)
	o := asNode(newCluster(t, nodeIP), external.addr)
	o.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("fd42::/48")}
	listen := netip.MustParseAddrPort(nodeIP + ":10053")
	listen6 := netip.MustParseAddrPort("[" + nodeIP6 + "]:10053")
	o.Listen = []netip.AddrPort{listen, listen6}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	s.sources.listAddrs = func() (out []netip.Prefix, err error) {
		err = node.Do(func() (err error) { out, err = interfaceAddresses(); return err })
		return out, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := node.Do(func() error { return s.Run(ctx) }); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	if err := s.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		place *networktest.Namespace
		from  string
		want  bool
	}{
		{wire, "10.42.7.2", true}, {wire, "fd42::2", true}, {node, nodeIP, true}, {node, "192.0.2.9", true}, {node, nodeIP6, true},
		{wire, "192.0.2.66", false}, {wire, "10.41.255.255", false}, {wire, "10.43.0.1", false}, {wire, "2001:db8::66", false}, {wire, "fd43::2", false},
	} {
		to := listen
		if strings.Contains(c.from, ":") {
			to = listen6
		}
		for _, question := range []string{"web.shop.svc.cluster.local. A", "www.example.com. A"} {
			for _, network := range []string{"udp", "tcp"} {
				packet, _ := packetOf(t, question)
				if network == "tcp" {
					packet = append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)
				}
				before := s.sources.dropped.Load()
				answer, err := exchangeFrom(c.place, network, c.from, to, packet, func() bool { return !c.want && s.sources.dropped.Load() > before })
				if (err == nil && len(answer) > 0) != c.want {
					t.Errorf("%s from %s over %s: %d bytes, %v", question, c.from, network, len(answer), err)
				}
			}
		}
	}
}

// exchangeFrom sends a packet from an address and returns the answer. It stops waiting when givenUp reports that there will be none.
func exchangeFrom(place *networktest.Namespace, network, from string, to netip.AddrPort, packet []byte, givenUp func() bool) (answer []byte, err error) {
	var conn net.Conn
	err = place.Do(func() error {
		d := net.Dialer{Timeout: testTimeout, LocalAddr: &net.UDPAddr{IP: net.ParseIP(from)}}
		if network == "tcp" {
			d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
		}
		conn, err = d.Dial(network, to.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := conn.Write(packet); err != nil && network == "udp" { // over TCP the other side may have closed already
		return nil, err
	}
	answer = make([]byte, 4096)
	for deadline := time.Now().Add(testTimeout); ; {
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		n, err := conn.Read(answer)
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return answer[:n], err
		}
		if givenUp() || time.Now().After(deadline) {
			return nil, err
		}
	}
}
