package core

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

func service(change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}
	change(s)
	defaultService(s)
	return s
}

func clusterIPService(ips ...string) *corev1.Service {
	return service(func(s *corev1.Service) {
		s.Spec.ClusterIP, s.Spec.ClusterIPs = ips[0], ips
		DefaultIPFamilies(s, corev1.IPv4Protocol)
	})
}

func TestClusterIPClaims(t *testing.T) {
	external := service(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName })
	one, two, none := clusterIPService("10.0.0.1"), clusterIPService("10.0.0.1", "fd00::1"), clusterIPService("None")
	unset := service(func(s *corev1.Service) {
		s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	})
	grown := service(func(s *corev1.Service) { *s = *two.DeepCopy(); s.Spec.ClusterIPs = s.Spec.ClusterIPs[:1] })
	preferring := func(s *corev1.Service) *corev1.Service {
		s = s.DeepCopy()
		s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyPreferDualStack)
		return s
	}
	for name, c := range map[string]struct {
		new, old *corev1.Service
		claims   []IPClaim
		release  []string
	}{
		"new":                       {unset, nil, []IPClaim{{corev1.IPv6Protocol, 0, ""}, {corev1.IPv4Protocol, 1, ""}}, nil},
		"new, asking":               {two, nil, []IPClaim{{corev1.IPv4Protocol, 0, "10.0.0.1"}, {corev1.IPv6Protocol, 1, "fd00::1"}}, nil},
		"new headless":              {none, nil, nil, nil},
		"new external name":         {external, nil, nil, nil},
		"no longer external name":   {one, external, []IPClaim{{corev1.IPv4Protocol, 0, "10.0.0.1"}}, nil},
		"becomes external name":     {external, two, nil, []string{"10.0.0.1", "fd00::1"}},
		"headless to external name": {external, none, nil, nil},
		"grows":                     {grown, one, []IPClaim{{corev1.IPv6Protocol, 1, ""}}, nil},
		"grows, asking":             {two, one, []IPClaim{{corev1.IPv6Protocol, 1, "fd00::1"}}, nil},
		"shrinks":                   {one, two, nil, []string{"fd00::1"}},
		"stays":                     {two, two, nil, nil},
		"prefers, and stays":        {preferring(one), preferring(one), nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			claims, release := ClusterIPClaims(c.new, c.old)
			if !slices.Equal(claims, c.claims) || !slices.Equal(release, c.release) {
				t.Errorf("claims %v, releases %v; want %v, %v", claims, release, c.claims, c.release)
			}
		})
	}
}

func TestSetClusterIP(t *testing.T) {
	old := clusterIPService("10.0.0.1", "fd00::1")
	s := old.DeepCopy()
	s.Spec.ClusterIPs = old.Spec.ClusterIPs[:1]
	SetClusterIP(s, IPClaim{Index: 1}, "fd00::2")
	if !slices.Equal(s.Spec.ClusterIPs, []string{"10.0.0.1", "fd00::2"}) || old.Spec.ClusterIPs[1] != "fd00::1" {
		t.Errorf("new %v, old %v", s.Spec.ClusterIPs, old.Spec.ClusterIPs)
	}
	SetClusterIP(s, IPClaim{Index: 0}, "10.0.0.2")
	if s.Spec.ClusterIP != "10.0.0.2" || s.Spec.ClusterIPs[0] != "10.0.0.2" {
		t.Errorf("%v", s.Spec)
	}
}

// ports is a pool that records its calls.
type ports struct {
	next int32
	full bool
	log  []string
}

func (p *ports) Take(port int32) error {
	p.log = append(p.log, fmt.Sprint("take ", port))
	if port == 13 {
		return errors.New("provided port is already allocated")
	}
	return nil
}

func (p *ports) TakeAny() (int32, error) {
	if p.full {
		return 0, errors.New("range is full")
	}
	p.next++
	p.log = append(p.log, fmt.Sprint("any ", p.next))
	return p.next, nil
}

func (p *ports) Release(port int32) { p.log = append(p.log, fmt.Sprint("release ", port)) }

func TestAllocateNodePorts(t *testing.T) {
	type port struct {
		number, node int32
		protocol     corev1.Protocol
	}
	of := func(kind corev1.ServiceType, list ...port) *corev1.Service {
		return service(func(s *corev1.Service) {
			s.Spec.Type, s.Spec.Ports = kind, nil
			for i, p := range list {
				s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint(i), Port: p.number, NodePort: p.node, Protocol: p.protocol})
			}
		})
	}
	local := func(check int32) *corev1.Service {
		s := of(corev1.ServiceTypeLoadBalancer)
		s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, check
		return s
	}
	sparing := of(corev1.ServiceTypeLoadBalancer, port{1, 0, "TCP"}, port{2, 22, "TCP"})
	sparing.Spec.AllocateLoadBalancerNodePorts = ptr.To(false)

	for name, c := range map[string]struct {
		new, old *corev1.Service
		log      []string
		got      []int32
		err      string
	}{
		"cluster IP":               {of(corev1.ServiceTypeClusterIP, port{1, 0, "TCP"}), nil, nil, nil, ""},
		"new":                      {of(corev1.ServiceTypeNodePort, port{1, 0, "TCP"}, port{2, 22, "TCP"}), nil, []string{"any 1", "take 22"}, []int32{1, 22}, ""},
		"new, shared":              {of(corev1.ServiceTypeNodePort, port{53, 0, "UDP"}, port{53, 22, "TCP"}), nil, []string{"take 22"}, []int32{22, 22}, ""},
		"new, shared by chance":    {of(corev1.ServiceTypeNodePort, port{53, 0, "UDP"}, port{53, 0, "TCP"}), nil, []string{"any 1"}, []int32{1, 1}, ""},
		"new, not shared":          {of(corev1.ServiceTypeNodePort, port{53, 21, "UDP"}, port{53, 22, "TCP"}), nil, []string{"take 21", "take 22"}, []int32{21, 22}, ""},
		"sparing":                  {sparing, nil, []string{"take 22"}, []int32{22}, ""},
		"taken":                    {of(corev1.ServiceTypeNodePort, port{1, 13, "TCP"}), nil, []string{"take 13"}, []int32{13}, "spec.ports[0].nodePort: Invalid value: 13: provided port is already allocated"},
		"health check":             {local(0), nil, []string{"any 1"}, nil, ""},
		"health check, asking":     {local(9), nil, []string{"take 9"}, nil, ""},
		"health check, taken":      {local(13), nil, []string{"take 13"}, nil, "failed to allocate requested HealthCheck NodePort 13: provided port is already allocated"},
		"keeps":                    {of(corev1.ServiceTypeNodePort, port{1, 11, "TCP"}), of(corev1.ServiceTypeNodePort, port{1, 11, "TCP"}), nil, []int32{11}, ""},
		"exchanges":                {of(corev1.ServiceTypeNodePort, port{1, 12, "TCP"}, port{2, 0, "TCP"}), of(corev1.ServiceTypeNodePort, port{1, 11, "TCP"}), []string{"take 12", "any 1", "release 11"}, []int32{12, 1}, ""},
		"twice":                    {of(corev1.ServiceTypeNodePort, port{1, 12, "TCP"}, port{2, 12, "TCP"}), of(corev1.ServiceTypeNodePort), []string{"take 12"}, []int32{12, 12}, "duplicate nodePort: {TCP 12}"},
		"no longer needed":         {of(corev1.ServiceTypeClusterIP, port{1, 11, "TCP"}), of(corev1.ServiceTypeNodePort, port{1, 11, "TCP"}), []string{"release 11"}, []int32{11}, ""},
		"health check not needed":  {of(corev1.ServiceTypeLoadBalancer), local(9), []string{"release 9"}, nil, ""},
		"health check still there": {local(9), local(9), nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pool := &ports{}
			err := AllocateNodePorts(c.new, c.old, pool)
			if got := fmt.Sprint(err); got != c.err && (err != nil || c.err != "") {
				t.Errorf("error %v, want %v", err, c.err)
			}
			if !slices.Equal(pool.log, c.log) || !slices.Equal(nodePorts(c.new), c.got) {
				t.Errorf("did %v, ports %v; want %v, %v", pool.log, nodePorts(c.new), c.log, c.got)
			}
		})
	}
	t.Run("full", func(t *testing.T) {
		err := AllocateNodePorts(of(corev1.ServiceTypeNodePort, port{1, 0, "TCP"}), nil, &ports{full: true})
		if invalid := (*field.Error)(nil); err == nil || errors.As(err, &invalid) {
			t.Errorf("a full range is not the client's fault: %v", err)
		}
	})
}

func TestReleased(t *testing.T) {
	s := clusterIPService("10.0.0.1", "fd00::1")
	s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
	s.Spec.Ports[0].NodePort, s.Spec.HealthCheckNodePort = 11, 12
	if got := ReleasedNodePorts(s); !slices.Equal(got, []int32{11, 12}) {
		t.Error(got)
	}
	if got := ReleasedClusterIPs(s); !slices.Equal(got, []string{"10.0.0.1", "fd00::1"}) {
		t.Error(got)
	}
	if got := ReleasedClusterIPs(clusterIPService("None")); got != nil {
		t.Error(got)
	}
}

// Services from before dual-stack and before clusterIPs are completed when they are read.
func TestDefaultOnRead(t *testing.T) {
	for name, c := range map[string]struct {
		ip       string
		selector map[string]string
		families []corev1.IPFamily
		policy   corev1.IPFamilyPolicy
	}{
		"IPv4":         {"10.0.0.1", nil, []corev1.IPFamily{corev1.IPv4Protocol}, corev1.IPFamilyPolicySingleStack},
		"IPv6":         {"fd00::1", nil, []corev1.IPFamily{corev1.IPv6Protocol}, corev1.IPFamilyPolicySingleStack},
		"headless":     {"None", map[string]string{"a": "b"}, []corev1.IPFamily{corev1.IPv6Protocol}, corev1.IPFamilyPolicySingleStack},
		"selectorless": {"None", nil, []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}, corev1.IPFamilyPolicyRequireDualStack},
	} {
		t.Run(name, func(t *testing.T) {
			s := service(func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.Selector = c.ip, c.selector })
			DefaultOnRead(s, corev1.IPv6Protocol)
			if !slices.Equal(s.Spec.ClusterIPs, []string{c.ip}) || !slices.Equal(s.Spec.IPFamilies, c.families) || familyPolicy(s) != c.policy {
				t.Errorf("%v %v %v", s.Spec.ClusterIPs, s.Spec.IPFamilies, familyPolicy(s))
			}
		})
	}
}

// An address that an object already holds is not refused for its form, whatever the rules are today.
func TestOldAddressesAreKept(t *testing.T) {
	old := clusterIPService("010.0.0.1")
	old.Spec.ExternalIPs = []string{"020.0.0.1"}
	old.Spec.Type, old.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyCluster
	old.Spec.LoadBalancerSourceRanges = []string{" 010.0.0.0/8"}
	old.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "010.0.0.2", IPMode: ptr.To(corev1.LoadBalancerIPModeVIP)}}
	defaultService(old)
	if errs := validateServiceUpdate(old.DeepCopy(), old); len(errs) > 0 {
		t.Error(errs)
	}
	if errs := validateServiceStatus(old.DeepCopy(), old); len(errs) > 0 {
		t.Error(errs)
	}
	if errs := validateService(old, nil); len(errs) != 3 {
		t.Error(errs)
	}
	if warnings := append(serviceWarnings(old, nil), serviceStatusWarnings(old, nil)...); len(warnings) != 4 {
		t.Error(warnings)
	}
}
