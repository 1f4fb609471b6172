package discovery

import (
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"skiff/internal/catalog/catalogtest"
)

func TestStories(t *testing.T) { catalogtest.Run(t, Resources(), catalogtest.Options{}) }

func withTopology(address, node string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{
		Addresses: []string{address}, DeprecatedTopology: map[string]string{corev1.LabelHostname: node},
	}}}
}

// Slices that were written through v1beta1 keep the names of their nodes.
func TestTopologyOfFormerVersions(t *testing.T) {
	old := withTopology("10.0.0.1", "node-1")

	same := old.DeepCopy()
	dropTopology(same, old)
	if same.Endpoints[0].DeprecatedTopology == nil {
		t.Error("unchanged endpoints lost their topology")
	}
	moved := withTopology("10.0.0.2", "node-1")
	dropTopology(moved, old)
	if e := moved.Endpoints[0]; ptr.Deref(e.NodeName, "") != "node-1" || e.DeprecatedTopology != nil {
		t.Errorf("%+v", e)
	}
	invented := withTopology("10.0.0.2", "node-2")
	dropTopology(invented, old)
	if e := invented.Endpoints[0]; e.NodeName != nil || e.DeprecatedTopology != nil {
		t.Errorf("%+v", e)
	}
}

// Endpoints that were accepted once stay valid as long as they do not change.
func TestUnchangedEndpoints(t *testing.T) {
	old := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"010.0.0.1"}}}}
	if errs := validateEndpointSliceUpdate(old.DeepCopy(), old); len(errs) > 0 {
		t.Error(errs)
	}
	if got := warnings(old, old); len(got) != 1 {
		t.Error(got)
	}
}

func TestLimits(t *testing.T) {
	s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: make([]discoveryv1.Endpoint, maxEndpoints+1), Ports: make([]discoveryv1.EndpointPort, maxPorts+1)}
	for i := range s.Endpoints {
		s.Endpoints[i].Addresses = []string{"10.0.0.1"}
	}
	errs := validateEndpointSlice(s)
	if len(errs) != 2 || errs[0].Error() != "ports: Too many: 20001: must have at most 20000 items" ||
		errs[1].Error() != "endpoints: Too many: 1001: must have at most 1000 items" {
		t.Error(errs)
	}
}

func BenchmarkEndpointSlice(b *testing.B) {
	s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: ptr.To[int32](80)}}}
	for i := range 100 {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.0.0." + strconv.Itoa(i)}, NodeName: ptr.To("node-1")})
	}
	b.ReportAllocs()
	for b.Loop() {
		defaultEndpointSlice(s)
		if errs := validateEndpointSlice(s); len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}
