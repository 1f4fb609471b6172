package service_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"skiff/internal/apiserver"
	"skiff/internal/apiserver/service"
	"skiff/internal/apitest"
)

// The errors of the API when nothing is left, with upstream's texts and status codes.
const (
	noPort       = "Internal error occurred: failed to allocate a nodePort: range is full"
	noHealthPort = "Internal error occurred: failed to allocate a HealthCheck NodePort 0: range is full"
)

func noAddress(name string) string {
	return fmt.Sprintf("Internal error occurred: failed to allocate a serviceIP for Service %q: range is full", name)
}

// small is a cluster with few cluster IPs and node ports.
type small struct {
	*testing.T
	server   *apitest.Server
	services typed.ServiceInterface
}

func newSmall(t *testing.T, nodePorts string, cidrs ...string) *small {
	server := apitest.Start(t, apitest.WithServer(func(o *apiserver.Options) { o.NodePortRange, o.ServiceCIDRs = nodePorts, cidrs }))
	return &small{t, server, server.Client().CoreV1().Services("default")}
}

// edit changes a service before it is created or in an update.
type edit = func(*corev1.ServiceSpec)

func (s *small) create(name string, edits ...edit) (*corev1.Service, error) {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "a", Port: 80}}}}
	for _, e := range edits {
		e(&svc.Spec)
	}
	return s.services.Create(s.Context(), svc, metav1.CreateOptions{})
}

func (s *small) mustCreate(name string, edits ...edit) *corev1.Service {
	s.Helper()
	svc, err := s.create(name, edits...)
	if err != nil {
		s.Fatal(err)
	}
	return svc
}

func (s *small) get(name string) *corev1.Service {
	s.Helper()
	svc, err := s.services.Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return svc
}

func (s *small) update(name string, change edit) error {
	s.Helper()
	svc := s.get(name)
	change(&svc.Spec)
	_, err := s.services.Update(s.Context(), svc, metav1.UpdateOptions{})
	return err
}

func (s *small) delete(name string) {
	s.Helper()
	if err := s.services.Delete(s.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
}

// refused checks the error of a request, and that it changed nothing.
func (s *small) refused(request func() error, code int32, text string) {
	s.Helper()
	before := s.all()
	err := request()
	status, ok := err.(apierrors.APIStatus)
	if !ok || status.Status().Code != code || err.Error() != text {
		s.Errorf("got  %v\nwant %d %s", err, code, text)
	}
	if after := s.all(); !slices.Equal(before, after) {
		s.Errorf("the cluster had %v and has %v", before, after)
	}
	s.addressesAreTheServices()
}

// all returns the services with their versions, in a fixed order.
func (s *small) all() (out []string) {
	s.Helper()
	list, err := s.services.List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	for _, svc := range list.Items {
		out = append(out, svc.Name+"@"+svc.ResourceVersion)
	}
	return out
}

// addressesAreTheServices checks that each allocated address is that of a service.
func (s *small) addressesAreTheServices() {
	s.Helper()
	var want, got []string
	list, err := s.services.List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	for _, svc := range list.Items {
		if svc.Spec.ClusterIP != corev1.ClusterIPNone {
			want = append(want, svc.Spec.ClusterIPs...)
		}
	}
	taken, err := s.server.Client().NetworkingV1().IPAddresses().List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	for _, a := range taken.Items {
		got = append(got, a.Name)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		s.Errorf("services have %v, allocated are %v", want, got)
	}
}

func onNodes(spec *corev1.ServiceSpec) { spec.Type = corev1.ServiceTypeNodePort }

// ports gives a service count ports.
func ports(count int) edit {
	return func(spec *corev1.ServiceSpec) {
		spec.Ports = spec.Ports[:min(count, len(spec.Ports))]
		for i := len(spec.Ports); i < count; i++ {
			spec.Ports = append(spec.Ports, corev1.ServicePort{Name: string(rune('a' + i)), Port: int32(80 + i)})
		}
	}
}

// at requests a node port for the last of a service's ports.
func at(port int32) edit {
	return func(spec *corev1.ServiceSpec) { spec.Ports[len(spec.Ports)-1].NodePort = port }
}

func balancedLocally(spec *corev1.ServiceSpec) {
	spec.Type, spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
}

// When all node ports are allocated, services that need one are refused. What was allocated for a refused service is released, its cluster IP
// too, and a port that is released can be allocated at once.
func TestNodePortsExhausted(t *testing.T) {
	s := newSmall(t, "30000-30003", "10.43.0.0/24")
	creating := func(name string, edits ...edit) func() error {
		return func() error { _, err := s.create(name, edits...); return err }
	}
	updating := func(name string, edits ...edit) func() error {
		return func() error {
			return s.update(name, func(spec *corev1.ServiceSpec) {
				for _, e := range edits {
					e(spec)
				}
			})
		}
	}
	s.mustCreate("inside")
	s.mustCreate("two", onNodes, ports(2))
	// Two ports are free.
	s.refused(creating("three", onNodes, ports(3)), http.StatusInternalServerError, noPort)
	s.refused(updating("two", ports(5)), http.StatusInternalServerError, noPort)
	s.refused(creating("health", balancedLocally, ports(2)), http.StatusInternalServerError, noHealthPort)
	// Both ports are still free.
	full := s.mustCreate("full", onNodes, ports(2))
	var got []int32
	for _, svc := range []*corev1.Service{s.get("two"), full} {
		for _, p := range svc.Spec.Ports {
			got = append(got, p.NodePort)
		}
	}
	if slices.Sort(got); !slices.Equal(got, []int32{30000, 30001, 30002, 30003}) {
		t.Fatalf("the node ports are %v", got)
	}

	taken := full.Spec.Ports[0].NodePort
	s.refused(creating("more", onNodes), http.StatusInternalServerError, noPort)
	s.refused(creating("more", onNodes, at(taken)), http.StatusUnprocessableEntity,
		fmt.Sprintf(`Service "more" is invalid: spec.ports[0].nodePort: Invalid value: %d: provided port is already allocated`, taken))
	s.refused(creating("more", onNodes, at(30004)), http.StatusUnprocessableEntity,
		`Service "more" is invalid: spec.ports[0].nodePort: Invalid value: 30004: provided port is not in the valid range. The range of valid ports is 30000-30003`)
	s.refused(updating("two", ports(3)), http.StatusInternalServerError, noPort)
	s.refused(updating("two", ports(3), at(taken)), http.StatusUnprocessableEntity,
		fmt.Sprintf(`Service "two" is invalid: spec.ports[2].nodePort: Invalid value: %d: provided port is already allocated`, taken))
	s.refused(updating("inside", onNodes), http.StatusInternalServerError, noPort)
	s.refused(updating("inside", balancedLocally), http.StatusInternalServerError, noPort)
	// The node port of a port that is replaced is released after the update, not before.
	s.refused(updating("two", func(spec *corev1.ServiceSpec) { spec.Ports[1] = corev1.ServicePort{Name: "other", Port: 8080} }), http.StatusInternalServerError, noPort)
	s.refused(func() error {
		_, err := s.services.Patch(t.Context(), "inside", types.MergePatchType, []byte(`{"spec":{"type":"NodePort"}}`), metav1.PatchOptions{})
		return err
	}, http.StatusInternalServerError, noPort)
	// Services that need no node port are not affected.
	s.mustCreate("headless", func(spec *corev1.ServiceSpec) { spec.ClusterIP = corev1.ClusterIPNone })
	s.mustCreate("unported", func(spec *corev1.ServiceSpec) {
		spec.Type, spec.AllocateLoadBalancerNodePorts = corev1.ServiceTypeLoadBalancer, new(false)
	})

	if err := s.update("two", ports(1)); err != nil {
		t.Fatal(err)
	}
	s.mustCreate("more", onNodes)
	s.refused(creating("next", onNodes), http.StatusInternalServerError, noPort)
	s.delete("more")
	if err := s.update("inside", onNodes); err != nil {
		t.Errorf("a port came free: %v", err)
	}
	s.delete("full")
	s.mustCreate("health", balancedLocally)
	s.refused(creating("next", onNodes), http.StatusInternalServerError, noPort)
	s.delete("health")
	s.mustCreate("next", onNodes, ports(2))
}

// When all cluster IPs are allocated, services that need one are refused, and get one as soon as one is released.
func TestClusterIPsExhausted(t *testing.T) {
	s := newSmall(t, "30000-30003", "10.43.0.0/29") // six addresses; the service "kubernetes" has one
	headless := func(spec *corev1.ServiceSpec) { spec.ClusterIP = corev1.ClusterIPNone }
	external := func(spec *corev1.ServiceSpec) {
		spec.Type, spec.ExternalName = corev1.ServiceTypeExternalName, "elsewhere.example"
	}
	internal := func(spec *corev1.ServiceSpec) { spec.Type, spec.ExternalName = corev1.ServiceTypeClusterIP, "" }
	s.mustCreate("external", external)
	for i := range 5 {
		s.mustCreate(fmt.Sprintf("s%d", i))
	}
	s.refused(func() error { _, err := s.create("more"); return err }, http.StatusInternalServerError, noAddress("more"))
	s.refused(func() error { _, err := s.create("more", onNodes, ports(4)); return err }, http.StatusInternalServerError, noAddress("more"))
	s.refused(func() error { return s.update("external", internal) }, http.StatusInternalServerError, noAddress("external"))
	taken := s.get("s0").Spec.ClusterIP
	s.refused(func() error {
		_, err := s.create("more", func(spec *corev1.ServiceSpec) { spec.ClusterIP = taken })
		return err
	}, http.StatusUnprocessableEntity, fmt.Sprintf(`Service "more" is invalid: spec.clusterIPs: Invalid value: [%q]: failed to allocate IP %s: provided IP is already allocated`, taken, taken))
	s.mustCreate("headless", headless) // needs no cluster IP

	s.delete("s0")
	if got := s.mustCreate("more", onNodes, ports(4)).Spec.ClusterIP; got != taken {
		t.Errorf("%s came free, and the next service has %s", taken, got)
	}
	if err := s.update("s1", external); err != nil {
		t.Fatal(err)
	}
	if err := s.update("external", internal); err != nil {
		t.Errorf("an address came free: %v", err)
	}
	s.refused(func() error { _, err := s.create("last"); return err }, http.StatusInternalServerError, noAddress("last"))
}

// The address of one family that was allocated for a dual-stack service is released if the other family is exhausted.
func TestOneFamilyExhausted(t *testing.T) {
	s := newSmall(t, "30000-30003", "10.43.0.0/29", "fd43::/126") // five are left of the one, three of the other
	dual := func(spec *corev1.ServiceSpec) {
		spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
	}
	for i := range 3 {
		s.mustCreate(fmt.Sprintf("d%d", i), dual)
	}
	s.mustCreate("single")
	s.refused(func() error { _, err := s.create("more", dual, onNodes); return err }, http.StatusInternalServerError, noAddress("more"))
	s.refused(func() error { return s.update("single", dual) }, http.StatusInternalServerError, noAddress("single"))
	s.mustCreate("last")
	s.refused(func() error { _, err := s.create("more"); return err }, http.StatusInternalServerError, noAddress("more"))
	s.delete("d0")
	s.mustCreate("more", dual, onNodes)
}

// An invalid range of node ports is refused with a readable error.
func TestNoRangeOfNodePorts(t *testing.T) {
	for given, want := range map[string]string{
		"0-10":        `invalid range of node ports "0-10": want two ports like 30000-32767: there is no port 0`,
		"many":        `invalid range of node ports "many": want two ports like 30000-32767: strconv.Atoi: parsing "many": invalid syntax`,
		"30010-30000": `invalid range of node ports "30010-30000": want two ports like 30000-32767: end port cannot be less than start port: 30010-30000`,
	} {
		_, err := service.New(service.Options{NodePorts: given, CIDRs: []string{"10.43.0.0/16"}})
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
