package overlay

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/vishvananda/netlink"

	"skiff/test/seed"
)

var rounds = flag.Int("rounds", 8, "of faults")

// TestFaults: after random faults of nodes, links, skiff and the API server every pod reaches every other, and no state is left behind.
func TestFaults(t *testing.T) {
	t.Parallel()
	number := seed.New(t)
	random := rand.New(rand.NewPCG(number, 0))
	backend := []string{VXLAN, HostGW, Auto, UDP}[random.IntN(4)]
	w := newTestCluster(t, 1500)
	w.remote = true
	machines := []*machine{w.add(1), w.add(2), w.add(3)}
	for _, m := range machines {
		m.join(backend, m.ip4, m.ip6)
	}
	allReach(t, machines)
	before := map[string]string{}
	for _, m := range machines {
		before[m.Name] = fmt.Sprint(m.everything(t))
	}
	faults := []struct {
		name string
		do   func(*machine)
	}{
		{"skiff is restarted", func(m *machine) { m.stop(); m.start(backend) }},
		{"the API is restarted", func(*machine) { w.server.Kill(); w.server.Restart() }},
		{"the node's link is down for a moment", func(m *machine) { m.bounce(t, "eth0") }},
		{"the node's link is down while skiff is away", func(m *machine) { m.stop(); m.bounce(t, "eth0"); m.start(backend) }},
		{"our interface is deleted", func(m *machine) {
			m.Must(t, func() error {
				if device := m.overlay.settings.device(); device != "" {
					return removeDeviceHere(device)
				}
				return nil
			})
		}},
		{"the node is registered anew", func(m *machine) { w.delete(m); m.register(m.ip4, m.ip6) }},
		{"the node is registered anew while skiff is away", func(m *machine) { m.stop(); w.delete(m); m.register(m.ip4, m.ip6); m.start(backend) }},
		{"all is cleaned while skiff is away", func(m *machine) { m.stop(); m.Must(t, Clean); m.start(backend) }},
	}
	for round := range *rounds {
		f, m := faults[random.IntN(len(faults))], machines[random.IntN(len(machines))]
		t.Logf("round %d, %s: %s", round, m.Name, f.name)
		f.do(m)
		allReach(t, machines)
		for _, m := range machines {
			eventually(t, func() error {
				if now := fmt.Sprint(m.everything(t)); now != before[m.Name] {
					return fmt.Errorf("seed %d, round %d: %s has\n%s\nbefore\n%s", number, round, m.Name, now, before[m.Name])
				}
				return nil
			})
		}
	}
}

func removeDeviceHere(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkDel(l)
}

func allReach(t *testing.T, machines []*machine) {
	t.Helper()
	for _, from := range machines {
		for _, to := range machines {
			for _, v6 := range []bool{false, true} {
				if from != to {
					from.pod.reaches(t, to.podIP(v6), from.podIP(v6))
				}
			}
		}
	}
}

// bounce sets a link down and up, and restores the IPv6 addresses that the kernel removes with it.
func (m *machine) bounce(t *testing.T, name string) {
	t.Helper()
	m.Must(t, func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkSetDown(l)
	})
	m.Up(t, name)
	m.Must(t, func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(m.ip6 + "/64")
		if err != nil {
			return err
		}
		return netlink.AddrReplace(l, a)
	})
}
