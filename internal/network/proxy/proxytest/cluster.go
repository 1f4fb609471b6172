//go:build linux

package proxytest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"skiff/internal/network/networktest"
	"skiff/internal/network/proxy/conntrack"
	"skiff/internal/network/proxy/model"
	"skiff/test/alone"
)

// Main runs the tests of a package in namespaces of their own. TestMain calls it.
func Main(m *testing.M) { alone.Main(m) }

// Options names the mode under test and what it cannot do by its nature.
type Options struct {
	New   func(model.Config) (model.Mode, error)
	Clean func() error // removes everything that the mode programmed

	HidesClients   bool // endpoints see the proxy's address, never the client's
	EndsOnClose    bool // connections end with the process
	IPv4Only       bool
	LoopbackToo    bool // node ports also answer at 127.0.0.1
	NoSourceRanges bool
}

// Cluster is a node with the hosts around it, a tracker and the mode under test.
type Cluster struct {
	Node, Outside, Far *Host
	Pods               []*Host
	Config             model.Config
	Mode               model.Mode
	Tracker            *model.Tracker
	options            Options
	number             int // the number of Services created so far
}

// endpointPort is the port of pods' servers.
const endpointPort = 8080

// PodIP returns the IPv4 address of a pod on this node.
func PodIP(i int) string { return fmt.Sprintf("10.42.0.%d", i+2) }

// Pod6 returns the IPv6 address of a pod on this node.
func Pod6(i int) string { return fmt.Sprintf("fd42::%d", i+2) }

// The addresses of the other hosts.
const (
	FarIP, Far6         = "10.42.1.2", "fd42:1::2"
	NodeIP, Node6       = "192.0.2.1", "2001:db8:1::1"
	OutsideIP, Outside6 = "192.0.2.2", "2001:db8:1::2"
)

// NewCluster creates the hosts, and the mode if Options.New is set. Otherwise the caller runs a proxy with Config.
func NewCluster(t *testing.T, o Options) *Cluster {
	t.Helper()
	w := &Cluster{Node: &Host{networktest.Namespace{Name: "node"}}, Outside: newHost(t, "outside"), Far: newHost(t, "far"), options: o}
	if err := errors.Join(networktest.Sysctl("net/ipv4/ip_forward", "1"), networktest.Sysctl("net/ipv6/conf/all/forwarding", "1"), networktest.Sysctl("net/ipv6/conf/default/accept_dad", "0")); err != nil {
		t.Fatal(err)
	}
	// Without rate limits every refused packet is answered by ICMP, not just one a second.
	if err := errors.Join(networktest.Sysctl("net/ipv4/icmp_ratelimit", "0"), networktest.Sysctl("net/ipv6/icmp/ratelimit", "0")); err != nil {
		t.Fatal(err)
	}
	link(t, "eth0", w.Outside, []string{NodeIP + "/24", Node6 + "/64"}, []string{OutsideIP + "/24", Outside6 + "/64"})
	for _, r := range []string{"10.43.0.0/16", "203.0.113.0/24"} {
		w.Outside.Route(t, r, NodeIP, "eth0")
	}
	for _, r := range []string{"fd43::/112", "2001:db8:2::/64"} {
		w.Outside.Route(t, r, Node6, "eth0")
	}
	w.Node.Route(t, "0.0.0.0/0", OutsideIP, "eth0") // without a route a process cannot even send to a cluster IP
	w.Node.Route(t, "::/0", Outside6, "eth0")
	link(t, "eth1", w.Far, []string{"198.51.100.1/24", "2001:db8:3::1/64"}, []string{"198.51.100.2/24", "2001:db8:3::2/64", FarIP + "/32", Far6 + "/128"})
	w.Node.Route(t, "10.42.1.0/24", "198.51.100.2", "eth1")
	w.Node.Route(t, "fd42:1::/64", "2001:db8:3::2", "eth1")
	for _, r := range []string{"10.42.0.0/24", "10.43.0.0/16"} {
		w.Far.Route(t, r, "198.51.100.1", "eth0")
	}
	for _, r := range []string{"fd42::/64", "fd43::/112"} {
		w.Far.Route(t, r, "2001:db8:3::1", "eth0")
	}
	w.Far.serve(t, endpointPort, FarIP, Far6)
	for i := range 3 {
		pod := newHost(t, fmt.Sprint("pod", i))
		name := fmt.Sprint("veth", i)
		link(t, name, pod, []string{"10.42.0.1/32", "fd42::1/128"}, []string{PodIP(i) + "/32", Pod6(i) + "/128"})
		w.Node.Route(t, PodIP(i)+"/32", "", name)
		w.Node.Route(t, Pod6(i)+"/128", "", name)
		pod.Route(t, "10.42.0.1/32", "", "eth0")
		pod.Route(t, "0.0.0.0/0", "10.42.0.1", "eth0")
		pod.Route(t, "fd42::1/128", "", "eth0")
		pod.Route(t, "::/0", "fd42::1", "eth0")
		pod.serve(t, endpointPort, PodIP(i), Pod6(i))
		w.Pods = append(w.Pods, pod)
	}
	w.Config = model.Config{
		NodeName: "here", NodeIPs: []netip.Addr{netip.MustParseAddr(NodeIP), netip.MustParseAddr(Node6)},
		ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("fd42::/32")},
		Log:          slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	t.Cleanup(func() {
		if err := o.Clean(); err != nil {
			t.Error(err)
		}
		for _, family := range []netlink.InetFamily{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			_, _ = netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, everything{})
		}
	})
	if o.New == nil {
		return w
	}
	w.Tracker = model.NewTracker(w.Config.NodeName, w.Config.NodeIPs)
	w.Tracker.SetServiceCIDRs([]netip.Prefix{netip.MustParsePrefix("10.43.0.0/16"), netip.MustParsePrefix("fd43::/112")})
	var err error
	if w.Mode, err = o.New(w.Config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Mode.Close(); err != nil {
			t.Error(err)
		}
	})
	w.Sync(t)
	return w
}

// everything is a conntrack filter that matches all flows.
type everything struct{}

func (everything) MatchConntrackFlow(*netlink.ConntrackFlow) bool { return true }

// Sync syncs the mode with the tracker, as the proxy does.
func (w *Cluster) Sync(t *testing.T) {
	t.Helper()
	state, changes := w.Tracker.Take()
	if err := w.Mode.Sync(context.Background(), state, changes); err != nil {
		t.Fatalf("sync: %v", err)
	}
	if w.Mode.FlowsInKernel() {
		if _, err := conntrack.DeleteStale(state, changes); err != nil {
			t.Fatal(err)
		}
	}
}

// Restart replaces the mode by a new instance, as after a restart of skiff.
func (w *Cluster) Restart(t *testing.T) {
	t.Helper()
	if err := w.Mode.Close(); err != nil {
		t.Fatal(err)
	}
	var err error
	if w.Mode, err = w.options.New(w.Config); err != nil {
		t.Fatal(err)
	}
	w.Tracker.ResyncAll()
	w.Sync(t)
}

// Expects asks once and expects an answer from one of the endpoints, which saw the source address from. An empty from is not checked.
func (w *Cluster) Expects(t *testing.T, p *Host, network, address, from string, who ...string) Answer {
	t.Helper()
	got, err := p.Ask(network, address, answerTimeout)
	switch {
	case err != nil:
		t.Errorf("%s asks %s %s: %v", p.Name, network, address, err)
	case !slices.Contains(who, got.Who):
		t.Errorf("%s asks %s %s: %s answers, want one of %v", p.Name, network, address, got.Who, who)
	case from != "" && !w.options.HidesClients && got.From.String() != from:
		t.Errorf("%s asks %s %s: %s sees %s, want %s", p.Name, network, address, got.Who, got.From, from)
	}
	return got
}

// ExpectsAll asks until all of the endpoints have answered, and expects answers from no others.
func (w *Cluster) ExpectsAll(t *testing.T, p *Host, network, address string, who ...string) {
	t.Helper()
	seen := map[string]bool{}
	for range 200 {
		got := w.Expects(t, p, network, address, "", who...)
		seen[got.Who] = true
		if len(seen) == len(who) || t.Failed() {
			return
		}
	}
	t.Errorf("%s asks %s %s 200 times: only %v answered, want all of %v", p.Name, network, address, seen, who)
}

// ExpectsRefusal expects the connection to be refused at once.
func (w *Cluster) ExpectsRefusal(t *testing.T, p *Host, network, address string) {
	t.Helper()
	start := time.Now()
	got, err := p.Ask(network, address, answerTimeout)
	refused := errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EPERM) // the latter is what a process on the node gets for its packet
	if !refused || time.Since(start) > answerTimeout/2 {
		t.Errorf("%s asks %s %s: %v, %v after %s, want to be refused at once", p.Name, network, address, got, err, time.Since(start))
	}
}

// ExpectsSilence expects packets to be dropped: neither an answer nor a refusal.
func (w *Cluster) ExpectsSilence(t *testing.T, p *Host, network, address string) {
	t.Helper()
	var late net.Error
	if got, err := p.Ask(network, address, dropTimeout); err == nil || !errors.As(err, &late) || !late.Timeout() {
		t.Errorf("%s asks %s %s: %v, %v, want silence", p.Name, network, address, got, err)
	}
}

// ExpectsNothing expects no answer, for whatever reason.
func (w *Cluster) ExpectsNothing(t *testing.T, p *Host, network, address string) {
	t.Helper()
	if got, err := p.Ask(network, address, dropTimeout); err == nil {
		t.Errorf("%s asks %s %s: %v, want no answer", p.Name, network, address, got)
	}
}

// families returns the address families that the mode serves.
func (w *Cluster) families() []model.Family {
	if w.options.IPv4Only {
		return []model.Family{model.IPv4}
	}
	return []model.Family{model.IPv4, model.IPv6}
}
