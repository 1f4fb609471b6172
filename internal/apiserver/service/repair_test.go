package service

import (
	"context"
	"errors"
	"math/big"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/store"
)

func (s *server) repair() {
	s.t.Helper()
	if err := s.alloc.Repair(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

func TestRepairReleasesLeakedAddressesAfterAGracePeriod(t *testing.T) {
	s := newServer(t, newStore(t), "30000-32767", "10.43.0.0/16")
	lost := service("lost")
	if _, err := s.alloc.addresses.create(t.Context(), lost, netipAddr("10.43.9.9")); err != nil {
		t.Fatal(err)
	}
	foreign := &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: "10.43.8.8"},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Group: "gateway.networking.k8s.io", Resource: "gateways", Name: "g", Namespace: "default"}}}
	if _, err := s.addresses.Create(t.Context(), foreign, s.write(false)); err != nil {
		t.Fatal(err)
	}
	kept := s.mustCreate(service("kept"))
	s.repair()
	if n := len(s.allocatedIPs()); n != 3 {
		t.Errorf("%d addresses, want 3: none is old enough to be a leak", n)
	}
	s.clock.SetTime(s.clock.Now().Add(2 * time.Minute))
	s.repair()
	want := []string{kept.Spec.ClusterIP, "10.43.8.8"}
	slices.Sort(want)
	if got := s.allocatedIPs(); !slices.Equal(got, want) {
		t.Errorf("allocated are %v, want %v", got, want)
	}
}

func TestRepairRestoresAddresses(t *testing.T) {
	s := newServer(t, newStore(t), "30000-32767", "10.43.0.0/16")
	a, b := s.mustCreate(service("a")), s.mustCreate(service("b"))
	forget := func(name string) {
		if _, _, err := s.addresses.Delete(t.Context(), "", name, &metav1.DeleteOptions{}, s.write(false)); err != nil {
			t.Fatal(err)
		}
	}
	forget(a.Spec.ClusterIP)
	// The other IPAddress was edited to refer to a service that does not exist.
	forget(b.Spec.ClusterIP)
	if _, err := s.alloc.addresses.create(t.Context(), service("other"), netipAddr(b.Spec.ClusterIP)); err != nil {
		t.Fatal(err)
	}
	s.clock.SetTime(s.clock.Now().Add(2 * time.Minute))
	s.repair()
	want := []string{a.Spec.ClusterIP, b.Spec.ClusterIP}
	slices.Sort(want)
	if got := s.allocatedIPs(); !slices.Equal(got, want) {
		t.Fatalf("allocated are %v, want %v", got, want)
	}
	s.delete("a")
	s.delete("b")
	if got := s.allocatedIPs(); len(got) != 0 {
		t.Errorf("the addresses were not in the services' names: %v stayed", got)
	}
}

func TestReleaseKeepsAddressesOfOthers(t *testing.T) {
	s := newServer(t, newStore(t), "30000-32767", "10.43.0.0/16")
	a := s.mustCreate(service("a"))
	if err := s.alloc.addresses.release(t.Context(), service("b"), a.Spec.ClusterIP); err != nil {
		t.Fatal(err)
	}
	if err := s.alloc.addresses.undo(t.Context(), allocation{name: a.Spec.ClusterIP, uid: "of an earlier one"}); err != nil {
		t.Fatal(err)
	}
	if got := s.allocatedIPs(); !slices.Equal(got, []string{a.Spec.ClusterIP}) {
		t.Errorf("the address of a was released: %v", got)
	}
}

func TestRepairRebuildsPorts(t *testing.T) {
	s := newServer(t, newStore(t), "30000-32767", "10.43.0.0/16")
	s.mustCreate(service("a", askingPort(30005)))
	change := func(edit func(*big.Int)) {
		t.Helper()
		if err := s.alloc.ports.change(t.Context(), func(b *big.Int) error { edit(b); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	change(func(b *big.Int) { b.SetBit(b, 5, 0).SetBit(b, 9, 1) })
	for _, later := range []time.Duration{0, time.Minute, portLeakAfter - 2*time.Minute} {
		s.clock.SetTime(s.clock.Now().Add(later))
		s.repair()
		if got := s.allocatedPorts(); !slices.Equal(got, []int32{30005, 30009}) {
			t.Errorf("allocated are %v, want 30005 back and 30009 still", got)
		}
	}
	s.clock.SetTime(s.clock.Now().Add(time.Minute))
	s.repair()
	if got := s.allocatedPorts(); !slices.Equal(got, []int32{30005}) {
		t.Errorf("allocated are %v, want 30009 given back", got)
	}
}

func TestPortsOfAnotherRangeAndOfNoObject(t *testing.T) {
	shared := newStore(t)
	old := newServer(t, shared, "30000-30099", "10.43.0.0/16")
	old.mustCreate(service("a", askingPort(30050)))
	old.mustCreate(service("b", askingPort(30001)))
	wider := newServer(t, shared, "30040-30200", "10.43.0.0/16")
	if _, err := wider.create(service("c", askingPort(30050))); err == nil {
		t.Error("a port was given out twice after the range was changed")
	}
	wider.mustCreate(service("d", askingPort(30150)))
	if got := wider.allocatedPorts(); !slices.Equal(got, []int32{30050, 30150}) {
		t.Errorf("allocated are %v", got)
	}
	if _, err := shared.Delete(t.Context(), "/registry/ranges/servicenodeports", -1); err != nil {
		t.Fatal(err)
	}
	third := newServer(t, shared, "30040-30200", "10.43.0.0/16")
	if _, err := third.create(service("e", askingPort(30150))); err == nil {
		t.Error("a port was given out twice after the object was lost")
	}
}

func TestRepairsDuringCreations(t *testing.T) {
	shared := newStore(t)
	servers := []*server{newServer(t, shared, "30000-30199", "10.43.0.0/16"), newServer(t, shared, "30000-30199", "10.43.0.0/16")}
	ctx, cancel := context.WithCancel(t.Context())
	var repairs, creations sync.WaitGroup
	for _, s := range servers {
		repairs.Go(func() {
			for ctx.Err() == nil {
				if err := s.alloc.Repair(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 8 {
		creations.Go(func() {
			for n := range 20 {
				name := string(rune('a'+i)) + string(rune('a'+n))
				if _, err := servers[i%2].create(service(name, nodePort)); err != nil {
					t.Error(err)
				}
				if n%2 == 0 {
					servers[(i+1)%2].delete(name)
				}
			}
		})
	}
	creations.Wait()
	cancel()
	repairs.Wait()
	if err := servers[0].alloc.Repair(t.Context()); err != nil {
		t.Fatal(err)
	}
	used, err := servers[0].alloc.nodePortsInUse(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(used) != 80 {
		t.Errorf("%d ports for 80 services", len(used))
	}
	for port := range used {
		if !slices.Contains(servers[0].allocatedPorts(), port) {
			t.Errorf("port %d is in use and not taken", port)
		}
	}
	if n := len(servers[1].allocatedIPs()); n < 80 {
		t.Errorf("%d addresses for 80 services", n)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	s := newServer(t, newStore(t), "30000-32767", "10.43.0.0/16")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { s.alloc.Run(ctx) })
	cancel()
	wg.Wait()
}

// unreliable is a store whose writes of services can end with an unknown outcome: some of them succeeded.
type unreliable struct {
	store.Store
	inDoubt, happens atomic.Bool
}

func (d *unreliable) Put(ctx context.Context, key string, value []byte, opts store.PutOptions) (int64, error) {
	if !d.inDoubt.Load() || !strings.HasPrefix(key, "/registry/services/specs/") {
		return d.Store.Put(ctx, key, value, opts)
	}
	if d.happens.Load() {
		if _, err := d.Store.Put(ctx, key, value, opts); err != nil {
			return 0, err
		}
	}
	return 0, errors.New("the connection broke")
}

func TestUnknownOutcomeReleasesNothing(t *testing.T) {
	for _, happened := range []bool{true, false} {
		d := &unreliable{Store: newStore(t)}
		s := newServer(t, d, "30000-32767", "10.43.0.0/16")
		d.inDoubt.Store(true)
		d.happens.Store(happened)
		if _, err := s.create(service("a", nodePort)); !apierrors.IsTimeout(err) {
			t.Fatalf("got %v, want a timeout", err)
		}
		d.inDoubt.Store(false)
		if len(s.allocatedIPs()) != 1 || len(s.allocatedPorts()) != 1 {
			t.Errorf("allocated are %v and %v: they may be in use and must stay", s.allocatedIPs(), s.allocatedPorts())
		}
		// Repair finds out what is in use.
		s.repair()
		s.clock.SetTime(s.clock.Now().Add(portLeakAfter))
		s.repair()
		want := 0
		if happened {
			want = 1
		}
		if len(s.allocatedIPs()) != want || len(s.allocatedPorts()) != want {
			t.Errorf("stored: %v; taken are %v and %v", happened, s.allocatedIPs(), s.allocatedPorts())
		}
	}
}
