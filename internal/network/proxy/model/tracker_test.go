package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func newTracker() *Tracker {
	t := NewTracker("here", []netip.Addr{netip.MustParseAddr("192.0.2.1")})
	t.SetNode(map[string]string{corev1.LabelTopologyZone: "a"})
	t.Take()
	return t
}

func web(change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.43.0.1", ClusterIPs: []string{"10.43.0.1"},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}},
	}
	if change != nil {
		change(s)
	}
	return s
}

// endpoints returns a slice of endpoints, each given as a word: its number, "@" and its node if that is not "here", flags, and hints: "1", "2@there!~",
// "3/a" for zone a, "4:there" for node there. "!" is not ready, "~" is terminating.
func endpoints(name string, words ...string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(8080)), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	for _, w := range words {
		e := discoveryv1.Endpoint{NodeName: ptr.To("here")}
		if strings.Contains(w, "!") {
			e.Conditions.Ready = ptr.To(false)
		}
		if strings.Contains(w, "~") {
			e.Conditions.Ready, e.Conditions.Terminating = ptr.To(false), ptr.To(true)
			e.Conditions.Serving = ptr.To(!strings.Contains(w, "!"))
		}
		w = strings.Trim(w, "!~")
		w, zone, zoned := strings.Cut(w, "/")
		w, node, noded := strings.Cut(w, ":")
		if zoned || noded {
			e.Hints = &discoveryv1.EndpointHints{}
		}
		if zoned {
			e.Hints.ForZones = []discoveryv1.ForZone{{Name: zone}}
		}
		if noded {
			e.Hints.ForNodes = []discoveryv1.ForNode{{Name: node}}
		}
		number, where, elsewhere := strings.Cut(w, "@")
		if elsewhere {
			e.NodeName = ptr.To(where)
		}
		e.Addresses = []string{"10.42.0." + number}
		slice.Endpoints = append(slice.Endpoints, e)
	}
	return slice
}

func numbers(list []Endpoint) string {
	var out []string
	for _, e := range list {
		_, last, _ := strings.Cut(e.Addr().String(), "10.42.0.")
		out = append(out, last)
	}
	return strings.Join(out, " ")
}

// TestEndpoints: which endpoints a Port uses, and the verdicts without any.
func TestEndpoints(t *testing.T) {
	internal := func(s *corev1.Service) {
		s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	}
	external := func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeNodePort, corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.Ports[0].NodePort = 30080
	}
	for _, test := range []struct {
		name               string
		service            func(*corev1.Service)
		endpoints          string
		cluster, local     string
		internal, external Verdict
	}{
		{"all that are ready", nil, "2@there 1 3!", "1 2", "", Forward, Forward},
		{"none", nil, "", "", "", Reject, Reject},
		{"none ready", nil, "1! 2!", "", "", Reject, Reject},
		{"terminating as a last resort", nil, "1~ 2@there~ 3! 4~!", "1 2", "", Forward, Forward},
		{"terminating are left out else", nil, "1~ 2@there", "2", "", Forward, Forward},
		{"two with one address", nil, "1~ 1", "1", "", Forward, Forward},
		{"internal policy", internal, "1 2@there", "", "1", Forward, Forward},
		{"internal policy with none here", internal, "2@there", "", "", Drop, Drop},
		{"internal policy with none at all", internal, "2@there!", "", "", Reject, Reject},
		{"internal policy with a terminating one here", internal, "1~ 2@there", "", "1", Forward, Forward},
		{"external policy", external, "1 2@there", "1 2", "1", Forward, Forward},
		{"external policy with none here", external, "2@there", "2", "", Forward, Drop},
		{"external policy with a terminating one here", external, "1~ 2@there", "2", "1", Forward, Forward},
		{"zones", nil, "1/a 2@there/b", "1", "", Forward, Forward},
		{"zones, one without", nil, "1/a 2@there", "1 2", "", Forward, Forward},
		{"zones, none for ours", nil, "1/b 2@there/b", "1 2", "", Forward, Forward},
		{"zones, ours not ready", nil, "1!/a 2@there/b", "2", "", Forward, Forward},
		{"nodes before zones", nil, "1:here/b 2@there:there/a", "1", "", Forward, Forward},
		{"nodes, none for ours", nil, "1:there/b 2@there:there/a", "2", "", Forward, Forward},
		{"zones do not matter to a policy", external, "1/b 2@there/a", "2", "1", Forward, Forward},
	} {
		t.Run(test.name, func(t *testing.T) {
			tracker := newTracker()
			tracker.SetService(web(test.service))
			tracker.SetSlice(nil, endpoints("web-1", strings.Fields(test.endpoints)...))
			state, changes := tracker.Take()
			if len(changes.Ports) != 1 || changes.All {
				t.Fatalf("changes %+v", changes)
			}
			p := state.Ports[changes.Ports[0].Key]
			if got := numbers(p.Cluster); got != test.cluster && p.usesCluster() {
				t.Errorf("cluster: %q, want %q", got, test.cluster)
			}
			if got := numbers(p.Local); got != test.local {
				t.Errorf("local: %q, want %q", got, test.local)
			}
			in, _ := p.Internal()
			ex, _ := p.External()
			if in != test.internal || (ex != test.external && p.IsExternal()) {
				t.Errorf("internal %d, external %d, want %d and %d", in, ex, test.internal, test.external)
			}
		})
	}
}

// TestService: the fields of a Service are in its Ports, by family.
func TestService(t *testing.T) {
	tracker := newTracker()
	tracker.SetService(web(func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.ClusterIPs = []string{"10.43.0.1", "fd43::1"}
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, NodePort: 30053})
		s.Spec.ExternalIPs = []string{"203.0.113.2", "203.0.113.1", "2001:db8::1", "nonsense", "203.0.113.1"}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}, {IP: "203.0.113.10", IPMode: ptr.To(corev1.LoadBalancerIPModeProxy)}, {Hostname: "x"}}
		s.Spec.LoadBalancerSourceRanges = []string{" 192.0.2.0/24 ", "192.0.2.128/25", "198.51.100.0/24", "2001:db8::/32", "::/0"}
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(int32(30))}}
	}))
	state, _ := tracker.Take()
	if len(state.Ports) != 4 {
		t.Fatalf("%d ports", len(state.Ports))
	}
	p := state.Ports[Key{"default", "web", "dns", UDP, IPv4}]
	if p == nil {
		t.Fatal("no port for DNS")
	}
	got := fmt.Sprint(p.ClusterIP, p.Port, p.NodePort, p.ExternalIPs, p.LoadBalancerIPs, p.SourceRanges, p.Affinity, p.ExternalAddresses())
	// The node's own address is in a range, so the load balancer's is allowed too: it is the node's source when it connects to itself.
	want := "10.43.0.1 53 30053 [203.0.113.1 203.0.113.2] [203.0.113.9] [192.0.2.0/24 198.51.100.0/24 203.0.113.9/32] 30s [203.0.113.1 203.0.113.2 203.0.113.9]"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	six := state.Ports[Key{"default", "web", "http", TCP, IPv6}]
	if got := fmt.Sprint(six.ClusterIP, six.ExternalIPs, six.SourceRanges); got != "fd43::1 [2001:db8::1] []" {
		t.Errorf("IPv6: %s", got)
	}
	tracker.SetService(web(func(s *corev1.Service) {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP // without a timeout
	}))
	state, _ = tracker.Take()
	if got := state.Ports[Key{"default", "web", "http", TCP, IPv4}].Affinity; got != 3*time.Hour {
		t.Errorf("affinity %s", got)
	}
}

// TestChanges: each Take returns exactly what changed since the last; objects come in any order.
func TestChanges(t *testing.T) {
	tracker := NewTracker("here", nil)
	if _, c := tracker.Take(); !c.All {
		t.Error("at first everything is unknown")
	}
	expect := func(want string) {
		t.Helper()
		_, changes := tracker.Take()
		var got []string
		for _, c := range changes.Ports {
			kind := "changed"
			switch {
			case c.Old == nil:
				kind = "new"
			case c.New == nil:
				kind = "gone"
			}
			got = append(got, kind+" "+c.Key.String())
		}
		if changes.All {
			got = append(got, "all")
		}
		if s := strings.Join(got, ", "); s != want {
			t.Errorf("%q, want %q", s, want)
		}
	}
	first := endpoints("web-1", "1", "2")
	tracker.SetSlice(nil, first)
	expect("")
	tracker.SetService(web(nil))
	expect("new default/web:http/tcp")
	tracker.SetService(web(func(s *corev1.Service) { s.Labels = map[string]string{"no": "matter"} }))
	expect("")
	tracker.SetSlice(nil, endpoints("web-2", "2", "3"))
	expect("changed default/web:http/tcp")
	tracker.DeleteSlice(endpoints("web-2", "2", "3"))
	expect("changed default/web:http/tcp")
	tracker.SetService(web(func(s *corev1.Service) { s.Spec.Ports[0].Name = "other" }))
	expect("gone default/web:http/tcp, new default/web:other/tcp")
	tracker.SetService(web(nil))
	expect("new default/web:http/tcp, gone default/web:other/tcp")
	moved := first.DeepCopy()
	moved.Labels[discoveryv1.LabelServiceName] = "another"
	tracker.SetSlice(first, moved)
	expect("changed default/web:http/tcp")
	tracker.SetSlice(moved, first)
	expect("changed default/web:http/tcp")
	tracker.ResyncAll()
	expect("all")
	tracker.SetServiceCIDRs([]netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")})
	expect("all")
	tracker.SetServiceCIDRs([]netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")})
	expect("")
	tracker.DeleteService(types.NamespacedName{Namespace: "default", Name: "web"})
	tracker.DeleteService(types.NamespacedName{Namespace: "default", Name: "never"})
	expect("gone default/web:http/tcp")
	tracker.DeleteSlice(first)
	expect("")
	if len(tracker.services) != 0 {
		t.Errorf("something is left: %v", tracker.services)
	}
}

func TestHealthChecks(t *testing.T) {
	tracker := newTracker()
	tracker.SetService(web(func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.HealthCheckNodePort = 31000
	}))
	tracker.SetSlice(nil, endpoints("web-1", "1", "2@there", "3!", "4"))
	tracker.SetSlice(nil, endpoints("web-2", "4", "5~"))
	tracker.Take()
	got := tracker.HealthChecks()[types.NamespacedName{Namespace: "default", Name: "web"}]
	if got.Port != 31000 || got.IPv4 != 2 || got.IPv6 != 0 || !slices.Equal(got.Family, []Family{IPv4}) {
		t.Errorf("%+v", got)
	}
	tracker.SetService(web(nil))
	tracker.Take()
	if len(tracker.HealthChecks()) != 0 {
		t.Error("a Service without a policy has none")
	}
}

func TestNodePortRanges(t *testing.T) {
	c := Config{NodeIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	if r, all := c.NodePortRanges(IPv4); all || fmt.Sprint(r) != "[192.0.2.1/32]" {
		t.Errorf("%v %v", r, all)
	}
	if r, all := c.NodePortRanges(IPv6); all || len(r) != 0 {
		t.Errorf("%v %v", r, all)
	}
	c.NodePortAddresses = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("::/0")}
	if r, all := c.NodePortRanges(IPv4); all || fmt.Sprint(r) != "[198.51.100.0/24]" {
		t.Errorf("%v %v", r, all)
	}
	if _, all := c.NodePortRanges(IPv6); !all {
		t.Error("::/0 is everywhere")
	}
}
