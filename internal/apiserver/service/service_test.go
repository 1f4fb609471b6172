package service

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"

	"skiff/internal/apiserver/registry"
	"skiff/internal/cache"
	"skiff/internal/catalog"
	"skiff/internal/catalog/core"
	"skiff/internal/catalog/networking"
	"skiff/internal/store"
	"skiff/internal/store/memory"
)

const root = "/registry/"

// server is the part of an API server that services need.
type server struct {
	t         *testing.T
	store     store.Store
	services  *registry.Registry
	addresses *registry.Registry
	cidrs     *registry.Registry
	alloc     *Allocator
	clock     *clocktesting.FakePassiveClock
}

// newServer starts a server on a store, which several servers can share.
func newServer(t *testing.T, s store.Store, nodePorts string, cidrs ...string) *server {
	t.Helper()
	infos := []*catalog.Info{core.Service.Info(), networking.IPAddress.Info(), networking.ServiceCIDR.Info()}
	var kinds []cache.Kind
	for _, info := range infos {
		kinds = append(kinds, registry.Kind(info, registry.Options{Root: root}))
	}
	feed := cache.NewFeed(s, kinds, cache.Options{Root: root})
	t.Cleanup(feed.Close)
	<-feed.Synced()
	var regs []*registry.Registry
	for _, info := range infos {
		regs = append(regs, registry.New(info, registry.Options{Store: s, Feed: feed, Root: root}))
	}
	sv := &server{t: t, store: s, services: regs[0], addresses: regs[1], cidrs: regs[2], clock: clocktesting.NewFakePassiveClock(time.Now())}
	var err error
	sv.alloc, err = New(Options{Services: regs[0], IPAddresses: regs[1], ServiceCIDRs: regs[2], Store: s, Prefix: "/registry", CIDRs: cidrs,
		NodePorts: nodePorts, Clock: sv.clock})
	if err != nil {
		t.Fatal(err)
	}
	sv.services.AddHooks(sv.alloc.Hooks())
	sv.cidr(DefaultCIDR, cidrs...)
	return sv
}

func (s *server) cidr(name string, cidrs ...string) {
	s.t.Helper()
	_, err := s.cidrs.Create(s.t.Context(), &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs}}, s.write(false))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		s.t.Fatal(err)
	}
}

func (s *server) write(dryRun bool) registry.Write {
	return registry.Write{DryRun: dryRun, Warn: func(string) {}, Request: catalog.Request{Now: s.clock.Now()}}
}

// service returns a service with the given name and port 80, changed by the edits.
func service(name string, edits ...func(*corev1.ServiceSpec)) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(80)}}}}
	for _, edit := range edits {
		edit(&svc.Spec)
	}
	core.Service.Default(svc)
	return svc
}

func nodePort(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort }

func asking(ip string) func(*corev1.ServiceSpec) {
	return func(s *corev1.ServiceSpec) { s.ClusterIP = ip }
}

func askingPort(port int32) func(*corev1.ServiceSpec) {
	return func(s *corev1.ServiceSpec) { s.Type, s.Ports[0].NodePort = corev1.ServiceTypeNodePort, port }
}

func (s *server) create(svc *corev1.Service) (*corev1.Service, error) { return s.createAs(svc, false) }

func (s *server) createAs(svc *corev1.Service, dryRun bool) (*corev1.Service, error) {
	it, err := s.services.Create(s.t.Context(), svc, s.write(dryRun))
	if err != nil {
		return nil, err
	}
	obj, err := s.services.Decode(it)
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Service), nil
}

func (s *server) mustCreate(svc *corev1.Service) *corev1.Service {
	s.t.Helper()
	created, err := s.create(svc)
	if err != nil {
		s.t.Fatal(err)
	}
	return created
}

func (s *server) update(name string, edit func(*corev1.Service)) (*corev1.Service, error) {
	it, _, err := s.services.Update(s.t.Context(), registry.Update{Namespace: "default", Name: name, Write: s.write(false),
		Transform: func(_ context.Context, current catalog.Object) (catalog.Object, error) {
			svc := current.(*corev1.Service)
			edit(svc)
			core.Service.Default(svc)
			return svc, nil
		}})
	if err != nil {
		return nil, err
	}
	obj, err := s.services.Decode(it)
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Service), nil
}

func (s *server) delete(name string) {
	s.t.Helper()
	if _, _, err := s.services.Delete(s.t.Context(), "default", name, &metav1.DeleteOptions{}, s.write(false)); err != nil {
		s.t.Fatal(err)
	}
}

// allocatedIPs returns the allocated cluster IPs.
func (s *server) allocatedIPs() []string {
	s.t.Helper()
	page, err := s.addresses.List(s.t.Context(), registry.List{})
	if err != nil {
		s.t.Fatal(err)
	}
	var names []string
	for _, it := range page.Items {
		names = append(names, it.Name)
	}
	return names
}

// allocatedPorts returns the allocated node ports from the store.
func (s *server) allocatedPorts() []int32 {
	s.t.Helper()
	kv, _, err := s.store.Get(s.t.Context(), "/registry/ranges/servicenodeports")
	if err != nil {
		s.t.Fatal(err)
	}
	bits, err := s.alloc.ports.decode(kv.Value)
	if err != nil {
		s.t.Fatal(err)
	}
	var taken []int32
	for i := range bits.BitLen() {
		if bits.Bit(i) == 1 {
			taken = append(taken, int32(s.alloc.ports.valid.Base+i))
		}
	}
	return taken
}

func newStore(t *testing.T) store.Store {
	s := memory.New(memory.Options{})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestParallelCreatorsFillARange(t *testing.T) {
	const creators = 64
	shared := newStore(t)
	servers := []*server{newServer(t, shared, "30000-30029", "10.0.0.0/27"), newServer(t, shared, "30000-30029", "10.0.0.0/27")}
	var mu sync.Mutex
	var ips []string
	var ports []int32
	var refusals int
	created := map[int]bool{}
	var wg sync.WaitGroup
	for i := range creators {
		wg.Go(func() {
			svc, err := servers[i%2].create(service(fmt.Sprintf("s%d", i), nodePort))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				if !strings.Contains(err.Error(), "range is full") || !apierrors.IsInternalError(err) {
					t.Errorf("refused for another reason: %v", err)
				}
				refusals++
				return
			}
			created[i] = true
			ips = append(ips, svc.Spec.ClusterIP)
			ports = append(ports, svc.Spec.Ports[0].NodePort)
		})
	}
	wg.Wait()
	const usable = 30
	slices.Sort(ips)
	slices.Sort(ports)
	if len(slices.Compact(slices.Clone(ips))) != usable || len(ips) != usable || refusals != creators-usable {
		t.Errorf("%d services got an address, %d were refused, want %d and %d: %v", len(ips), refusals, usable, creators-usable, ips)
	}
	if len(slices.Compact(slices.Clone(ports))) != usable {
		t.Errorf("node ports were given out twice: %v", ports)
	}
	if n := len(servers[0].allocatedIPs()); n != usable {
		t.Errorf("%d IPAddresses, want %d", n, usable)
	}
	if got := servers[1].allocatedPorts(); !slices.Equal(got, ports) {
		t.Errorf("taken ports are %v, want %v", got, ports)
	}
	for i := range created {
		servers[(i+1)%2].delete(fmt.Sprintf("s%d", i)) // on the server that did not create it
	}
	if left := servers[0].allocatedIPs(); len(left) != 0 {
		t.Errorf("addresses left behind: %v", left)
	}
	if left := servers[0].allocatedPorts(); len(left) != 0 {
		t.Errorf("ports left behind: %v", left)
	}
}

func TestParallelCreatorsFillThePorts(t *testing.T) {
	shared := newStore(t)
	servers := []*server{newServer(t, shared, "30000-30019", "10.0.0.0/16"), newServer(t, shared, "30000-30019", "10.0.0.0/16")}
	var mu sync.Mutex
	var ports []int32
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			svc, err := servers[i%2].create(service(fmt.Sprintf("s%d", i), nodePort))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				ports = append(ports, svc.Spec.Ports[0].NodePort)
			} else if err.Error() != "Internal error occurred: failed to allocate a nodePort: range is full" {
				t.Errorf("refused for another reason: %v", err)
			}
		})
	}
	wg.Wait()
	slices.Sort(ports)
	want := make([]int32, 20)
	for i := range want {
		want[i] = 30000 + int32(i)
	}
	if !slices.Equal(ports, want) {
		t.Errorf("got the ports %v, want each once", ports)
	}
	if n := len(servers[0].allocatedIPs()); n != len(want) {
		t.Errorf("%d IPAddresses, want %d: those of refused services must go back", n, len(want))
	}
}

func TestRefusals(t *testing.T) {
	s := newServer(t, newStore(t), "30000-32767", "10.43.0.0/16")
	s.mustCreate(service("holder", asking("10.43.0.1"), askingPort(30100)))
	local := func(s *corev1.ServiceSpec) {
		s.Type, s.ExternalTrafficPolicy, s.HealthCheckNodePort = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal, 30100
	}
	// The texts are those of kube-apiserver v1.37.1.
	for _, c := range []struct {
		name   string
		svc    *corev1.Service
		dryRun bool
		want   string
	}{
		{"out of range", service("a", asking("1.2.3.4")), false,
			`Service "a" is invalid: spec.clusterIPs: Invalid value: ["1.2.3.4"]: failed to allocate IP 1.2.3.4: the provided network does not match the current range`},
		{"the network's address", service("a", asking("10.43.0.0")), false,
			`Service "a" is invalid: spec.clusterIPs: Invalid value: ["10.43.0.0"]: failed to allocate IP 10.43.0.0: the provided network does not match the current range`},
		{"broadcast", service("a", asking("10.43.255.255")), false,
			`Service "a" is invalid: spec.clusterIPs: Invalid value: ["10.43.255.255"]: failed to allocate IP 10.43.255.255: the provided network does not match the current range`},
		{"taken", service("a", asking("10.43.0.1")), false,
			`Service "a" is invalid: spec.clusterIPs: Invalid value: ["10.43.0.1"]: failed to allocate IP 10.43.0.1: provided IP is already allocated`},
		{"no address", service("a", asking("bogus")), false,
			`Service "a" is invalid: spec.clusterIPs[0]: Invalid value: "bogus": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`},
		{"out of range, dry run", service("a", asking("1.2.3.4")), true,
			`Service "a" is invalid: spec.clusterIPs: Invalid value: ["1.2.3.4"]: failed to allocate IP 1.2.3.4: the provided IP (1.2.3.4) is not in the valid range. The range of valid IPs is 10.43.0.0/16`},
		{"port out of range", service("a", askingPort(100)), false,
			`Service "a" is invalid: spec.ports[0].nodePort: Invalid value: 100: provided port is not in the valid range. The range of valid ports is 30000-32767`},
		{"port taken", service("a", askingPort(30100)), false,
			`Service "a" is invalid: spec.ports[0].nodePort: Invalid value: 30100: provided port is already allocated`},
		{"port taken, dry run", service("a", askingPort(30100)), true,
			`Service "a" is invalid: spec.ports[0].nodePort: Invalid value: 30100: provided port is already allocated`},
		{"health check port taken", service("a", local), false,
			`Internal error occurred: failed to allocate requested HealthCheck NodePort 30100: provided port is already allocated`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := s.createAs(c.svc, c.dryRun)
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
	if got := s.allocatedIPs(); !slices.Equal(got, []string{"10.43.0.1"}) {
		t.Errorf("taken addresses %v", got)
	}
	if got := s.allocatedPorts(); !slices.Equal(got, []int32{30100}) {
		t.Errorf("taken ports %v", got)
	}
}

func TestDryRunAllocatesNothing(t *testing.T) {
	s := newServer(t, newStore(t), "30000-32767", "10.43.0.0/16")
	two := func(s *corev1.ServiceSpec) {
		s.Ports = append(s.Ports, corev1.ServicePort{Name: "b", Port: 81, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(81)})
		s.Ports[0].Name = "a"
	}
	svc, err := s.createAs(service("a", nodePort, two), true)
	if err != nil {
		t.Fatal(err)
	}
	if svc.Spec.ClusterIP != "10.43.0.0" || svc.Spec.Ports[0].NodePort != 32769 || svc.Spec.Ports[1].NodePort != 32770 {
		t.Errorf("got %v and %v, want what upstream answers: the network's address and ports from 32769", svc.Spec.ClusterIP, svc.Spec.Ports)
	}
	if len(s.allocatedIPs())+len(s.allocatedPorts()) != 0 {
		t.Errorf("a dry run took %v and %v", s.allocatedIPs(), s.allocatedPorts())
	}
}

func TestRollbackOnValidationFailure(t *testing.T) {
	s := newServer(t, newStore(t), "30000-32767", "10.43.0.0/16")
	bad := service("a", nodePort)
	bad.Spec.SessionAffinity = "Sometimes"
	if _, err := s.create(bad); !apierrors.IsInvalid(err) {
		t.Fatalf("got %v, want Invalid", err)
	}
	if len(s.allocatedIPs())+len(s.allocatedPorts()) != 0 {
		t.Errorf("an invalid service keeps %v and %v", s.allocatedIPs(), s.allocatedPorts())
	}
	s.mustCreate(service("b", nodePort))
	if _, err := s.create(service("b", nodePort)); !apierrors.IsAlreadyExists(err) {
		t.Fatalf("got %v, want AlreadyExists", err)
	}
	if len(s.allocatedIPs()) != 1 || len(s.allocatedPorts()) != 1 {
		t.Errorf("taken are %v and %v, want one of each", s.allocatedIPs(), s.allocatedPorts())
	}
}

func TestUpdates(t *testing.T) {
	s := newServer(t, newStore(t), "30000-32767", "10.43.0.0/16", "fd00::/112")
	first := s.mustCreate(service("a", nodePort))
	ip, port := first.Spec.ClusterIP, first.Spec.Ports[0].NodePort

	again, err := s.update("a", func(svc *corev1.Service) {
		svc.Spec.ClusterIP, svc.Spec.ClusterIPs, svc.Spec.Ports[0].NodePort = "", nil, 0
	})
	if err != nil || again.Spec.ClusterIP != ip || again.Spec.Ports[0].NodePort != port {
		t.Errorf("the same manifest again: %v, %v; want %s and %d kept", again, err, ip, port)
	}
	dual, err := s.update("a", func(svc *corev1.Service) {
		policy := corev1.IPFamilyPolicyRequireDualStack
		svc.Spec.IPFamilyPolicy = &policy
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(dual.Spec.ClusterIPs) != 2 || !strings.HasPrefix(dual.Spec.ClusterIPs[1], "fd00::") || len(s.allocatedIPs()) != 2 {
		t.Errorf("dual stack: %v, taken %v", dual.Spec.ClusterIPs, s.allocatedIPs())
	}
	if _, err := s.update("a", func(svc *corev1.Service) {
		policy := corev1.IPFamilyPolicySingleStack
		svc.Spec.IPFamilyPolicy = &policy
	}); err != nil {
		t.Fatal(err)
	}
	if got := s.allocatedIPs(); !slices.Equal(got, []string{ip}) {
		t.Errorf("single stack again: taken are %v, want %s", got, ip)
	}
	moved, err := s.update("a", func(svc *corev1.Service) { svc.Spec.Ports[0].NodePort = 30001 })
	if err != nil || moved.Spec.Ports[0].NodePort != 30001 || !slices.Equal(s.allocatedPorts(), []int32{30001}) {
		t.Errorf("another node port: %v, taken %v", err, s.allocatedPorts())
	}
	if _, err := s.update("a", func(svc *corev1.Service) {
		svc.Spec.Type, svc.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.com"
	}); err != nil {
		t.Fatal(err)
	}
	if len(s.allocatedIPs())+len(s.allocatedPorts()) != 0 {
		t.Errorf("an external name keeps %v and %v", s.allocatedIPs(), s.allocatedPorts())
	}
}

func TestIPAddressIsAsUpstreamWritesIt(t *testing.T) {
	s := newServer(t, newStore(t), "30000-32767", "10.43.0.0/16")
	s.mustCreate(service("a", asking("10.43.0.7")))
	it, err := s.addresses.Get(t.Context(), "", "10.43.0.7", "")
	if err != nil {
		t.Fatal(err)
	}
	obj, err := s.addresses.Decode(it)
	if err != nil {
		t.Fatal(err)
	}
	got := obj.(*networkingv1.IPAddress)
	if fmt.Sprint(got.Labels) != "map[ipaddress.kubernetes.io/ip-family:IPv4 ipaddress.kubernetes.io/managed-by:ipallocator.k8s.io]" ||
		*got.Spec.ParentRef != (networkingv1.ParentReference{Resource: "services", Namespace: "default", Name: "a"}) {
		t.Errorf("got %v %v", got.Labels, got.Spec.ParentRef)
	}
}

func TestMoreServiceCIDRs(t *testing.T) {
	s := newServer(t, newStore(t), "30000-32767", "10.43.0.0/29")
	s.cidr("more", "10.44.0.0/29")
	s.mustCreate(service("asked", asking("10.44.0.3")))
	for i := range 11 {
		s.mustCreate(service(fmt.Sprintf("s%d", i)))
	}
	if _, err := s.create(service("last")); err == nil || !strings.Contains(err.Error(), `failed to allocate a serviceIP for Service "last": range is full`) {
		t.Errorf("both full: %v", err)
	}
	s.delete("asked")
	it, err := s.cidrs.Get(t.Context(), "", "more", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err = s.cidrs.Update(t.Context(), registry.Update{Name: it.Name, Edit: s.cidrs.Info.Status, Write: s.write(false),
		Transform: func(_ context.Context, current catalog.Object) (catalog.Object, error) {
			c := current.(*networkingv1.ServiceCIDR)
			c.Status.Conditions = []metav1.Condition{{Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionFalse}}
			return c, nil
		}}); err != nil {
		t.Fatal(err)
	}
	if err := s.cidrs.WaitFor(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.create(service("asked", asking("10.44.0.3"))); err == nil || !strings.Contains(err.Error(), "does not match the current range") {
		t.Errorf("a ServiceCIDR that is not ready gives out addresses: %v", err)
	}
}

func TestBlock(t *testing.T) {
	for _, c := range []struct {
		prefix, first, last string
		static              uint64
		ok                  bool
	}{
		{"10.43.0.0/16", "10.43.0.1", "10.43.255.254", 256, true},
		{"10.0.0.0/24", "10.0.0.1", "10.0.0.254", 16, true},
		{"10.0.0.0/20", "10.0.0.1", "10.0.15.254", 256, true},
		{"10.0.0.0/21", "10.0.0.1", "10.0.7.254", 128, true},
		{"10.0.0.0/28", "10.0.0.1", "10.0.0.14", 0, true},
		{"10.0.0.0/30", "10.0.0.1", "10.0.0.2", 0, true},
		{"10.0.0.0/31", "", "", 0, false},
		{"10.0.0.0/32", "", "", 0, false},
		{"fd00::/112", "fd00::1", "fd00::ffff", 256, true},
		{"fd00::/64", "fd00::1", "fd00::ffff:ffff:ffff:ffff", 256, true},
		{"fd00::/63", "", "", 0, false},
	} {
		b, ok := newBlock(netip.MustParsePrefix(c.prefix))
		if ok != c.ok || ok && (b.first.String() != c.first || b.last.String() != c.last || b.static != c.static) {
			t.Errorf("%s: got %v %v, want %v", c.prefix, b, ok, c)
		}
	}
}

func TestCandidatesAreAllAddressesUpperFirst(t *testing.T) {
	b, _ := newBlock(netip.MustParsePrefix("10.0.0.0/26"))
	var got []netip.Addr
	for ip := range b.candidates() {
		got = append(got, ip)
	}
	upper := 62 - 16
	if len(got) != 62 || slices.Min(addrs(got[:upper])) != "10.0.0.17" || slices.Max(addrs(got[upper:])) != "10.0.0.9" {
		t.Errorf("got %v", got)
	}
	for _, ip := range got[upper:] {
		if ip.As4()[3] > 16 {
			t.Errorf("%s is not in the lower part", ip)
		}
	}
	sorted := addrs(got)
	slices.Sort(sorted)
	if len(slices.Compact(sorted)) != 62 {
		t.Errorf("an address came twice: %v", sorted)
	}
}

func addrs(ips []netip.Addr) []string {
	var out []string
	for _, ip := range ips {
		out = append(out, ip.String())
	}
	return out
}

func netipAddr(s string) netip.Addr { return netip.MustParseAddr(s) }
