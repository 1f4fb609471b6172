package iptables

import (
	"fmt"
	"net/netip"
	"testing"

	"skiff/internal/network/proxy/model"
)

// cluster returns a State of many Services with ten endpoints each.
func cluster(services int) *model.State {
	state := &model.State{Ports: map[model.Key]*model.Port{}}
	for i := range services {
		p := port(fmt.Sprint("svc-", i))
		p.ClusterIP, p.HasAnyEndpoint = netip.AddrFrom4([4]byte{10, 43, byte(i / 250), byte(i%250 + 1)}), true
		for e := range 10 {
			n := i*10 + e
			p.Cluster = append(p.Cluster, model.Endpoint{AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 42 + byte(n/62500), byte(n / 250 % 250), byte(n%250 + 1)}), 8080)})
		}
		state.Ports[p.Key] = p
	}
	return state
}

// BenchmarkLarge measures a full Sync of a large cluster, and the change of one endpoint in it.
func BenchmarkLarge(b *testing.B) {
	for _, services := range []int{500, 5000} {
		state := cluster(services)
		m, err := New(model.Config{})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprint("all-", services), func(b *testing.B) {
			for b.Loop() {
				if err := m.Sync(b.Context(), state, model.Changes{All: true}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprint("one-of-", services), func(b *testing.B) {
			old := state.Ports[port("svc-7").Key]
			less := *old
			less.Cluster = old.Cluster[1:]
			for b.Loop() {
				state.Ports[old.Key] = &less
				if err := m.Sync(b.Context(), state, model.Changes{Ports: []model.Change{{Key: old.Key, Old: old, New: &less}}}); err != nil {
					b.Fatal(err)
				}
				old, less = &less, *old
			}
		})
		if err := Clean(); err != nil {
			b.Fatal(err)
		}
	}
}
