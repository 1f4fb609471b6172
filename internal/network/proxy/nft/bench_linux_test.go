package nft

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"skiff/internal/network/proxy/model"
)

// crowd returns a State of many Services with ten endpoints each, on other nodes.
func manyServices(services int) *model.State {
	state := &model.State{Ports: map[model.Key]*model.Port{}}
	for i := range services {
		p := &model.Port{
			Key:       model.Key{Namespace: "default", Service: fmt.Sprint("svc-", i), Port: "http", Protocol: model.TCP, Family: model.IPv4},
			ClusterIP: netip.AddrFrom4([4]byte{10, 43, byte(i >> 8), byte(i)}), Port: 80, HasAnyEndpoint: true,
		}
		for j := range 10 {
			n := i*10 + j
			p.Cluster = append(p.Cluster, model.Endpoint{AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(100 + n>>16), byte(n >> 8), byte(n)}), 8080)})
		}
		state.Ports[p.Key] = p
	}
	return state
}

// BenchmarkFull writes 5,000 Services with 50,000 endpoints in place of as many.
func BenchmarkFull(b *testing.B) {
	m, state := newBench(b), manyServices(5000)
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Sync(context.Background(), state, model.Changes{All: true}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkChange changes one endpoint among as many.
func BenchmarkChange(b *testing.B) {
	m, state := newBench(b), manyServices(5000)
	if err := m.Sync(context.Background(), state, model.Changes{All: true}); err != nil {
		b.Fatal(err)
	}
	var old *model.Port
	for _, old = range state.Ports {
		break
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		changed := *old
		changed.Cluster = append([]model.Endpoint(nil), old.Cluster...)
		changed.Cluster[3].AddrPort = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)}), 8080)
		if i%2 == 0 {
			changed.Cluster = changed.Cluster[:9]
		}
		state.Ports[old.Key] = &changed
		if err := m.Sync(context.Background(), state, model.Changes{Ports: []model.Change{{Key: old.Key, Old: old, New: &changed}}}); err != nil {
			b.Fatal(err)
		}
		old = &changed
	}
}

func newBench(b *testing.B) *Mode {
	m, err := New(model.Config{NodeName: "here"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := Clean(); err != nil {
			b.Error(err)
		}
	})
	return m
}
