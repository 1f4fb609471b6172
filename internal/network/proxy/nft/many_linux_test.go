package nft

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/nftables"

	"skiff/internal/network/proxy/model"
	"skiff/internal/network/proxy/proxytest"
)

// TestCrowd: with so many elements that netlink messages reach their limits, all elements of every kind and family arrive.
func TestCrowd(t *testing.T) {
	w := proxytest.NewCluster(t, options)
	state := manyServices(3000)
	for i := range 1200 {
		p := &model.Port{
			Key:       model.Key{Namespace: "default", Service: fmt.Sprint("six-", i), Protocol: model.UDP, Family: model.IPv6},
			ClusterIP: six(0xfd43, i), Port: 53, NodePort: uint16(31000 + i), HasAnyEndpoint: true, ExternalLocal: true,
			LoadBalancerIPs: []netip.Addr{six(0x2001, i)}, SourceRanges: []netip.Prefix{netip.PrefixFrom(six(0x2002, 0), 48), netip.PrefixFrom(six(0x2003, i), 128)},
		}
		for j := range 5 {
			p.Cluster = append(p.Cluster, model.Endpoint{AddrPort: netip.AddrPortFrom(six(0xfd44, i*5+j), 53), Local: j == 0})
		}
		p.Local = p.Cluster[:1]
		if i%400 == 0 {
			p.Affinity = time.Hour
		}
		state.Ports[p.Key] = p
	}
	mine := &model.Port{
		Key:       model.Key{Namespace: "default", Service: "mine", Protocol: model.TCP, Family: model.IPv4},
		ClusterIP: netip.MustParseAddr("10.43.200.200"), Port: 80, HasAnyEndpoint: true,
		Cluster: []model.Endpoint{{AddrPort: netip.MustParseAddrPort("10.42.0.2:8080"), Local: true}},
	}
	state.Ports[mine.Key] = mine
	m := w.Mode.(*Mode)
	if err := m.Sync(t.Context(), state, model.Changes{All: true}); err != nil {
		t.Fatal(err)
	}
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		family, role, count int
	}{
		{0, int(services), 3001}, {0, int(endpoints), 30001}, {0, int(clusterIPs), 3001},
		{1, int(services), 2400}, {1, int(endpoints), 1197 * 6}, {1, int(clusterEndpoints), 1197 * 5}, {1, int(clusterNodePortEndpoints), 1197 * 5},
		{1, int(nodePorts), 1200}, {1, int(restricted), 1200}, {1, int(allowed), 2400}, {1, int(hairpins), 1200},
	} {
		set := m.sets[want.family][want.role]
		list, err := c.GetSetElements(set)
		if err != nil || len(list) != want.count {
			t.Errorf("%s: %d elements, %v, want %d", set.Name, len(list), err, want.count)
		}
	}
	w.Expects(t, w.Pods[1], "tcp", "10.43.200.200:80", proxytest.PodIP(1), "pod0")
	changed := *mine
	changed.Cluster = []model.Endpoint{{AddrPort: netip.MustParseAddrPort("10.42.0.4:8080"), Local: true}}
	state.Ports[mine.Key] = &changed
	if err := m.Sync(t.Context(), state, model.Changes{Ports: []model.Change{{Key: mine.Key, Old: mine, New: &changed}}}); err != nil {
		t.Fatal(err)
	}
	w.Expects(t, w.Pods[1], "tcp", "10.43.200.200:80", proxytest.PodIP(1), "pod2")
	// A full sync replaces everything.
	if err := m.Sync(t.Context(), state, model.Changes{All: true}); err != nil {
		t.Fatal(err)
	}
	w.Expects(t, w.Pods[1], "tcp", "10.43.200.200:80", proxytest.PodIP(1), "pod2")
	if intact, err := m.Intact(t.Context()); err != nil || !intact {
		t.Errorf("intact: %v, %v", intact, err)
	}
}

// six returns the n-th address of an IPv6 range.
func six(first uint16, n int) netip.Addr {
	return netip.AddrFrom16([16]byte{byte(first >> 8), byte(first), 12: byte(n >> 24), 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)})
}
