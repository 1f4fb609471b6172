package userspace

import (
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"skiff/internal/network/proxy/model"
)

func TestBalancer(t *testing.T) {
	var room atomic.Int64
	room.Store(3)
	b := balancer{room: &room}
	list := make([]netip.AddrPort, 3)
	for i := range list {
		list[i] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 42, 0, byte(i)}), 80)
	}
	now := time.Now()
	who := func(client byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, client}) }
	pick := func(client byte, again bool) int {
		to, ok := b.pick(who(client), now, again)
		if !ok {
			return -1
		}
		return int(to.Addr().As4()[3])
	}
	expect := func(what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	expect("nobody", pick(1, false), -1)
	b.set(list, time.Minute)
	expect("the first", pick(1, false), 0)
	expect("stays", pick(1, false), 0)
	expect("another", pick(2, false), 1)
	now = now.Add(50 * time.Second)
	expect("stays, later", pick(1, false), 0)
	now = now.Add(50 * time.Second)
	expect("stays, as it came in between", pick(1, false), 0)
	expect("was away for too long", pick(2, false), 2)
	expect("its endpoint does not answer", pick(2, true), 0)
	expect("stays with the new one", pick(2, false), 0)
	b.set(list[1:], time.Minute)
	if got := pick(1, false); got == 0 {
		t.Error("that endpoint is gone")
	}
	pick(3, false)
	if n := room.Load(); n != 0 {
		t.Errorf("room for %d, want none", n)
	}
	// When there is no room, clients are served without being recorded, until others expire.
	first, second := pick(4, false), pick(4, false)
	if first == second || len(b.clients) != 3 {
		t.Errorf("%d, %d, %d clients", first, second, len(b.clients))
	}
	now = now.Add(time.Hour)
	first = pick(4, false)
	expect("stays, as there is room", pick(4, false), first)
	expect("the only one that is remembered", len(b.clients), 1)
	b.close()
	if n := room.Load(); n != 3 || len(b.clients) != 0 {
		t.Errorf("room for %d, want 3", n)
	}
}

// TestNew: New fails with a reason where the mode cannot work.
func TestNew(t *testing.T) {
	if _, err := New(model.Config{}); err == nil || !strings.Contains(err.Error(), "address of the node") {
		t.Error(err)
	}
	config := model.Config{NodeIPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}
	if _, err := NewWithLimits(config, Limits{}); err == nil {
		t.Error("no limits at all")
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := New(config); err == nil || !strings.Contains(err.Error(), "package iptables") {
		t.Error(err)
	}
}

// TestPorts: the listeners' ports of one Service do not collide, and are in the expected range.
func TestPorts(t *testing.T) {
	seen := map[string]bool{}
	for i := range 200 {
		for _, local := range []bool{false, true} {
			ports := poolName{model.Key{Namespace: "default", Service: fmt.Sprint("web-", i), Protocol: model.TCP, Family: model.IPv4}, local}.ports()
			if ports[len(ports)-1] != 0 {
				t.Error("in the end any port will do")
			}
			for _, p := range ports[:len(ports)-1] {
				if p < firstPort || p > lastPort {
					t.Errorf("port %d", p)
				}
			}
			seen[fmt.Sprint(ports)] = true
		}
	}
	if len(seen) != 400 {
		t.Errorf("%d of 400 are different", len(seen))
	}
}
