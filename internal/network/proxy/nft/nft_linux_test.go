package nft

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/network/proxy/model"
	"skiff/internal/network/proxy/proxytest"
)

func TestMain(m *testing.M) { proxytest.Main(m) }

var options = proxytest.Options{
	New:   func(c model.Config) (model.Mode, error) { return New(c) },
	Clean: Clean,
}

func TestSuite(t *testing.T) { proxytest.Run(t, options) }

// TestNoSuchPort: traffic to a cluster IP on a port that the Service does not have, or to an unused cluster IP, does not leave the node.
func TestNoSuchPort(t *testing.T) {
	w := proxytest.NewCluster(t, options)
	s := w.NewService(t, nil, "pod0")
	for _, client := range []*proxytest.Host{w.Pods[1], w.Node} {
		w.ExpectsRefusal(t, client, "tcp", strings.Replace(s.At(model.IPv4), ":80", ":81", 1))
		w.ExpectsRefusal(t, client, "tcp", strings.Replace(s.At(model.IPv6), "]:80", "]:81", 1))
	}
	w.ExpectsSilence(t, w.Pods[1], "tcp", "10.43.77.77:80")
	w.ExpectsSilence(t, w.Pods[1], "udp", "[fd43::7777]:80")
}

// TestOptions: node ports at all addresses of the node but loopback, and MasqueradeAll.
func TestOptions(t *testing.T) {
	o := options
	o.New = func(c model.Config) (model.Mode, error) {
		c.MasqueradeAll, c.MasqueradeBit = true, 15
		c.NodePortAddresses = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("2001:db8:3::/64")}
		return New(c)
	}
	w := proxytest.NewCluster(t, o)
	s := w.NewService(t, func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeNodePort
		s.Spec.Ports[0].NodePort = 30080
	}, "pod0")
	w.Expects(t, w.Pods[1], "tcp", s.At(model.IPv4), "10.42.0.1", "pod0")
	w.Expects(t, w.Pods[1], "tcp", "10.42.0.1:30080", "", "pod0")
	w.Expects(t, w.Pods[1], "tcp", "198.51.100.1:30080", "", "pod0")
	w.Expects(t, w.Node, "tcp", "198.51.100.1:30080", "", "pod0")
	w.ExpectsNothing(t, w.Node, "tcp", "127.0.0.1:30080")
	w.Expects(t, w.Pods[1], "tcp", "[2001:db8:3::1]:30080", "", "pod0")
	w.ExpectsNothing(t, w.Outside, "tcp", "["+proxytest.Node6+"]:30080")
}

// TestAffinitySurvivesRestart: a client keeps its endpoint when the table is replaced.
func TestAffinitySurvivesRestart(t *testing.T) {
	w := proxytest.NewCluster(t, options)
	s := w.NewService(t, func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }, "pod0", "pod1", "pod2", "far")
	for _, f := range []model.Family{model.IPv4, model.IPv6} {
		first := w.Expects(t, w.Outside, "tcp", s.At(f), "", "pod0", "pod1", "pod2", "far")
		for range 8 {
			w.Restart(t)
			w.Expects(t, w.Outside, "tcp", s.At(f), "", first.Who)
		}
	}
}

// TestNoGap: new connections succeed at any time, while rules are changed and while all of them are replaced.
func TestNoGap(t *testing.T) {
	w := proxytest.NewCluster(t, options)
	steady, busy := w.NewService(t, nil, "pod0"), w.NewService(t, nil, "pod1")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var wg sync.WaitGroup
	asked := 0
	wg.Go(func() {
		for ; ctx.Err() == nil; asked++ {
			if got, err := w.Pods[2].Ask("tcp", steady.At(model.IPv4), 5*time.Second); err != nil || got.Who != "pod0" {
				t.Errorf("after %d questions: %v, %v", asked, got, err)
				return
			}
		}
	})
	for i := range 30 {
		switch i % 3 {
		case 0:
			w.Restart(t)
		case 1:
			busy.SetEndpoints(t, "pod1", "far")
		case 2:
			busy.SetEndpoints(t)
		}
	}
	stop()
	wg.Wait()
	if asked < 30 {
		t.Errorf("only %d questions in that time", asked)
	}
}

// TestSomebodyMeddles: a failed transaction changes nothing and is reported; the next Sync writes everything.
func TestSomebodyMeddles(t *testing.T) {
	w := proxytest.NewCluster(t, options)
	s := w.NewService(t, nil, "pod0")
	other := w.NewService(t, nil, "pod1")
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	set := w.Mode.(*Mode).sets[0][services]
	key := frontend{address: netip.MustParseAddr(s.Object.Spec.ClusterIP), protocol: model.TCP, port: 80}.key()
	if err := c.SetDeleteElements(set, []nftables.SetElement{{Key: []byte(key)}}); err != nil {
		t.Fatal(err)
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	w.ExpectsNothing(t, w.Pods[1], "tcp", s.At(model.IPv4))
	w.Tracker.DeleteService(types.NamespacedName{Namespace: s.Object.Namespace, Name: s.Object.Name})
	state, changes := w.Tracker.Take()
	if err := w.Mode.Sync(t.Context(), state, changes); err == nil {
		t.Fatal("an element is gone, and nobody noticed")
	}
	w.Expects(t, w.Pods[2], "tcp", other.At(model.IPv4), proxytest.PodIP(2), "pod1")
	w.Tracker.SetService(s.Object)
	w.Tracker.ResyncAll()
	w.Sync(t)
	w.Expects(t, w.Pods[1], "tcp", s.At(model.IPv4), proxytest.PodIP(1), "pod0")
}

// TestSharedBalancer: two load balancers with the same address and port, each with ranges that overlap the other's.
func TestSharedBalancer(t *testing.T) {
	w := proxytest.NewCluster(t, options)
	at := func(ranges ...string) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Spec.Type, s.Spec.LoadBalancerSourceRanges = corev1.ServiceTypeLoadBalancer, ranges
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.40"}}
		}
	}
	first := w.NewService(t, at("192.0.2.0/24", "10.42.0.3/32"), "pod0")
	second := w.NewService(t, at("192.0.2.0/28", "10.42.0.0/29"), "pod1")
	w.Expects(t, w.Outside, "tcp", "203.0.113.40:80", "", "pod0")
	w.ExpectsSilence(t, w.Pods[2], "tcp", "203.0.113.40:80")
	w.Restart(t)
	w.Expects(t, w.Outside, "tcp", "203.0.113.40:80", "", "pod0")
	first.Delete(t)
	w.Expects(t, w.Outside, "tcp", "203.0.113.40:80", "", "pod1")
	w.Expects(t, w.Pods[2], "tcp", "203.0.113.40:80", "", "pod1")
	second.Update(t, at("198.51.100.0/24"))
	w.ExpectsSilence(t, w.Outside, "tcp", "203.0.113.40:80")
}

// TestMarkIsCleared: the mark that requests masquerading is cleared before a packet leaves.
func TestMarkIsCleared(t *testing.T) {
	w := proxytest.NewCluster(t, options)
	w.NewService(t, func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeNodePort
		s.Spec.Ports[0].NodePort = 30080
	}, "far")
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	// A rule drops packets that leave with the mark: there must be none.
	theirs := c.AddTable(&nftables.Table{Name: "theirs", Family: nftables.TableFamilyINet})
	last := nftables.ChainPriority(200)
	chain := c.AddChain(&nftables.Chain{Name: "last", Table: theirs, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPostrouting, Priority: &last})
	m := w.Mode.(*Mode)
	c.AddRule(&nftables.Rule{Table: theirs, Chain: chain, Exprs: append(m.isMarked(), drop()...)})
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.DelTable(theirs)
		if err := c.Flush(); err != nil {
			t.Error(err)
		}
	})
	w.Expects(t, w.Outside, "tcp", proxytest.NodeIP+":30080", "198.51.100.1", "far")
}

// TestNftShowsIt: nft lists the rules. Some versions abort when they meet expressions that they cannot print.
func TestNftShowsIt(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Fatal("nft is not needed but for this: make packages installs it")
	}
	w := proxytest.NewCluster(t, options)
	for _, affinity := range []corev1.ServiceAffinity{corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone} {
		for i, policy := range []corev1.ServiceExternalTrafficPolicy{corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal} {
			w.NewService(t, func(s *corev1.Service) {
				s.Spec.Type, s.Spec.ExternalTrafficPolicy, s.Spec.SessionAffinity = corev1.ServiceTypeLoadBalancer, policy, affinity
				s.Spec.Ports[0].NodePort, s.Spec.ExternalIPs = int32(30080+i), []string{fmt.Sprintf("203.0.113.%d", 50+i)}
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: fmt.Sprintf("203.0.113.%d", 60+i)}}
				s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
			}, "pod0", "far")
		}
	}
	w.Expects(t, w.Outside, "tcp", "203.0.113.60:80", "", "pod0", "far")
	out, err := exec.Command("nft", "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"203.0.113.60 . tcp . 80 . 192.0.2.0/24", "dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map @endpoints4", "192.0.2.2 timeout 3h"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// TestNumbers: numbers of Ports are unique, derived from names, and released.
func TestNumbers(t *testing.T) {
	c := newClaims(0)
	seen := map[uint32]model.Key{}
	for i := range 200_000 {
		key := model.Key{Namespace: "default", Service: fmt.Sprint("svc-", i), Protocol: model.TCP, Family: model.IPv4}
		id := c.id(key)
		if other, taken := seen[id]; taken {
			t.Fatalf("%s and %s have %d", key, other, id)
		}
		seen[id] = key
		if c.id(key) != id {
			t.Fatal("asked again, another number")
		}
	}
	key := model.Key{Namespace: "default", Service: "svc-7", Protocol: model.TCP, Family: model.IPv4}
	c.releaseID(key)
	if _, taken := c.taken[newClaims(0).id(key)]; taken {
		t.Error("a number was not given back")
	}
}

// TestAffinityComesAndGoes: Services with session affinity that are created and deleted leave nothing behind in the long run.
func TestAffinityComesAndGoes(t *testing.T) {
	w := proxytest.NewCluster(t, options)
	steady := w.NewService(t, func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }, "pod0")
	m, most := w.Mode.(*Mode), 0
	for range 15 {
		s := w.NewService(t, func(s *corev1.Service) {
			s.Spec.Type, s.Spec.SessionAffinity = corev1.ServiceTypeNodePort, corev1.ServiceAffinityClientIP
			s.Spec.Ports[0].NodePort = 30080
		}, "pod0", "pod1", "pod2", "far")
		s.Delete(t)
		most = max(most, len(m.empty))
	}
	if most < maxEmptyChains || len(m.empty) >= most || m.recreate {
		t.Errorf("%d empty chains, at most %d; afresh %v", len(m.empty), most, m.recreate)
	}
	if intact, err := m.Intact(t.Context()); err != nil || !intact {
		t.Errorf("intact: %v, %v", intact, err)
	}
	w.Expects(t, w.Pods[1], "tcp", steady.At(model.IPv4), proxytest.PodIP(1), "pod0")
	// Affinity that is switched off and on again finds its chains empty.
	for range 2 {
		steady.Update(t, func(s *corev1.Service) { s.Spec.SessionAffinity, s.Spec.ExternalIPs = corev1.ServiceAffinityNone, nil })
		w.Expects(t, w.Pods[1], "tcp", steady.At(model.IPv4), proxytest.PodIP(1), "pod0")
		steady.Update(t, func(s *corev1.Service) {
			s.Spec.SessionAffinity, s.Spec.ExternalIPs = corev1.ServiceAffinityClientIP, []string{"203.0.113.70"}
		})
		w.Expects(t, w.Pods[1], "tcp", steady.At(model.IPv4), proxytest.PodIP(1), "pod0")
		w.Expects(t, w.Outside, "tcp", "203.0.113.70:80", "", "pod0")
	}
}
