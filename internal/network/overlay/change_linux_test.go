package overlay

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/network/podnet"
)

// TestMTUFollows: when the MTU of the link between nodes shrinks, so does that of pods, packets still pass, and MTUChanged is called.
func TestMTUFollows(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t, 9000)
	a, b := w.add(1), w.add(2)
	a.join(VXLAN, a.ip4)
	b.join(VXLAN, b.ip4)
	if got := <-a.mtus; got != 8950 {
		t.Errorf("MTU %d", got)
	}
	a.pod.reaches(t, b.podIP(false), a.podIP(false))
	transfer(t, a.pod, b.podIP(false), 1<<20)
	for _, m := range []*machine{a, b} {
		m.Must(t, func() error {
			eth0, err := netlink.LinkByName("eth0")
			return errors.Join(err, netlink.LinkSetMTU(eth0, 1400))
		})
		select {
		case got := <-m.mtus:
			if m == b && got == 8950 { // the MTU at first
				got = <-m.mtus
			}
			if got != 1350 {
				t.Errorf("MTU %d after the change", got)
			}
		case <-time.After(testTimeout):
			t.Fatal("nobody says that the MTU changed")
		}
		m.Must(t, func() error {
			got, err := MTU(VXLAN, []netip.Addr{netip.MustParseAddr(m.ip4)})
			if got != 1350 {
				t.Errorf("MTU says %d", got)
			}
			return err
		})
	}
	transfer(t, a.pod, b.podIP(false), 1<<20) // although the pods' own links still have the larger MTU
	transfer(t, b.pod, a.podIP(true), 1<<20)

	dir := t.TempDir()
	config := podnet.Config{Dir: dir, State: dir, PodCIDRs: clusterCIDRs, MTU: a.overlay.MTU()}
	if err := config.Write(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.conflist"))
	if err != nil || len(files) != 1 {
		t.Fatalf("configurations %v, %v", files, err)
	}
	if data, err := os.ReadFile(files[0]); err != nil || !strings.Contains(string(data), `"mtu": 1350`) {
		t.Errorf("%v in\n%s", err, data)
	}
}

// TestBackendChanges: a restart with another backend removes the state of the one before.
func TestBackendChanges(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t, 1500)
	a, b := w.add(1), w.add(2)
	a.join(VXLAN, a.ip4, a.ip6)
	b.join(VXLAN, b.ip4, b.ip6)
	for _, backend := range []string{HostGW, UDP, Auto, VXLAN} {
		for _, m := range []*machine{a, b} {
			m.stop()
			m.start(backend)
		}
		a.pod.reaches(t, b.podIP(false), a.podIP(false))
		b.pod.reaches(t, a.podIP(true), b.podIP(true))
		for _, device := range []string{vxlanDevice, tunDevice} {
			wanted := a.overlay.settings.device() == device
			if found := strings.Contains(a.links(t), "="+device+" "); found != wanted {
				t.Errorf("with %s: %s is there: %v", backend, device, found)
			}
		}
	}
}

// TestPublished: the node publishes its annotations and condition in its Node with its own identity, as NodeRestriction allows.
func TestPublished(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t, 1500)
	a := w.add(1)
	a.join(VXLAN, a.ip4)
	eventually(t, func() error {
		n, err := w.server.Client().CoreV1().Nodes().Get(context.Background(), a.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if n.Annotations[BackendAnnotation] != "vxlan" || n.Annotations[MACAnnotation] != macOf(a.Name).String() {
			return fmt.Errorf("annotations %v", n.Annotations)
		}
		if !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionFalse && c.Reason == reasonUp
		}) {
			return fmt.Errorf("conditions %v", n.Status.Conditions)
		}
		return nil
	})
}

// TestServerAway: pods reach each other while the API server is down and after it is back; nodes deleted meanwhile are removed then.
func TestServerAway(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t, 1500)
	w.remote = true
	a, b, c := w.add(1), w.add(2), w.add(3)
	for _, m := range []*machine{a, b, c} {
		m.join(VXLAN, m.ip4)
	}
	a.pod.reaches(t, b.podIP(false), a.podIP(false))
	a.pod.reaches(t, c.podIP(false), a.podIP(false))
	w.server.Kill()
	a.pod.reaches(t, b.podIP(false), a.podIP(false))
	w.server.Restart()
	w.delete(c)
	a.without(t, "10.42.3.0/24")
	a.pod.reaches(t, b.podIP(true), a.podIP(true))
}

// TestOwnRangeChanges: a node that is registered again with another pod CIDR gets an address of it, and other nodes reach its pods there.
func TestOwnRangeChanges(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t, 1500)
	a, b := w.pair(VXLAN)
	w.delete(a)
	b.without(t, "10.42.1.0/24")
	a.number = 5
	a.register(a.ip4)
	b.reachable(t, "10.42.5.0/24")
	eventually(t, func() error {
		all := strings.Join(a.everything(t), "\n")
		if strings.Contains(all, "10.42.1.0") || strings.Contains(all, "fd42:0:0:1::/") || !strings.Contains(all, "address 10.42.5.0/32") || !strings.Contains(all, "address fd42:0:0:5::/128") {
			return errors.New(all)
		}
		return nil
	})
}

// reachable waits until there is a route to a range.
func (s *namespace) reachable(t testing.TB, to string) {
	t.Helper()
	eventually(t, func() error {
		for _, line := range s.everything(t) {
			if strings.HasPrefix(line, "route "+to) {
				return nil
			}
		}
		return errors.New("no route to " + to)
	})
}
