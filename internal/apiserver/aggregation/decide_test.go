package aggregation

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver/nonresource"
)

// What is done about an APIService is upstream's table: see k8s.io/kube-aggregator/pkg/controllers/autoregister.
func TestDecide(t *testing.T) {
	service := func(mode string) *wantedService {
		if mode == "" {
			return nil
		}
		return &wantedService{"g", "v1", nonresource.Priority{Group: 1, Version: 2}, mode}
	}
	object := func(mode string, same bool) *apiregistrationv1.APIService {
		s := &apiregistrationv1.APIService{Spec: service(managedAlways).spec()}
		if mode != "none" {
			s.Labels = map[string]string{managed: mode}
		}
		if !same {
			s.Spec.VersionPriority = 9
		}
		return s
	}
	for _, c := range []struct {
		wanted, current string // managed modes; empty if there is none, "none" for an object without the label
		same            bool
		atStart, synced bool
		want            change
	}{
		{"", "", false, false, false, nothing},
		{managedOnStart, "", false, false, false, create},
		{managedOnStart, "", false, false, true, nothing}, // once
		{managedAlways, "", false, false, true, create},

		{"", "none", false, true, false, nothing},
		{managedOnStart, "none", false, true, false, nothing},
		{managedAlways, "none", false, true, false, nothing},
		{managedAlways, "other", false, true, false, nothing},

		{"", managedOnStart, false, false, false, nothing}, // another server's, made after this one has started
		{managedOnStart, managedOnStart, false, false, false, nothing},
		{managedAlways, managedOnStart, false, false, false, nothing},

		{"", managedOnStart, false, true, false, remove},
		{"", managedOnStart, false, true, true, nothing},
		{managedOnStart, managedOnStart, false, true, false, update},
		{managedOnStart, managedOnStart, false, true, true, nothing},
		{managedAlways, managedOnStart, false, true, false, update},
		{managedAlways, managedOnStart, false, true, true, nothing},

		{"", managedAlways, false, false, true, remove},
		{managedOnStart, managedAlways, false, false, false, update},
		{managedOnStart, managedAlways, false, false, true, nothing},
		{managedAlways, managedAlways, false, false, true, update},
		{managedAlways, managedAlways, true, false, true, nothing},
	} {
		var current *apiregistrationv1.APIService
		if c.current != "" {
			current = object(c.current, c.same)
		}
		if got := decide(service(c.wanted), current, c.atStart, c.synced); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestServiceProblem(t *testing.T) {
	service := func(kind corev1.ServiceType, ports ...corev1.ServicePort) *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{Type: kind, Ports: ports}}
	}
	slice := func(ready *bool, port *string, number *int32) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{Endpoints: []discoveryv1.Endpoint{{Conditions: discoveryv1.EndpointConditions{Ready: ready}}}, Ports: []discoveryv1.EndpointPort{{Name: port, Port: number}}}
	}
	clusterIP := service(corev1.ServiceTypeClusterIP, corev1.ServicePort{Name: "other", Port: 80}, corev1.ServicePort{Name: "https", Port: 443})
	https, number := ptr.To("https"), ptr.To[int32](8443)
	for _, c := range []struct {
		name    string
		service *corev1.Service
		slices  []*discoveryv1.EndpointSlice
		reason  string
	}{
		{"no Service", nil, nil, "ServiceNotFound"},
		{"an external name, which is tried", service(corev1.ServiceTypeExternalName), nil, ""},
		{"of nodes, which is tried", service(corev1.ServiceTypeNodePort), nil, ""},
		{"another port", service(corev1.ServiceTypeClusterIP, corev1.ServicePort{Port: 80}), nil, "ServicePortError"},
		{"no slices", clusterIP, nil, "EndpointsNotFound"},
		{"ready unknown", clusterIP, []*discoveryv1.EndpointSlice{slice(nil, https, number)}, ""},
		{"ready", clusterIP, []*discoveryv1.EndpointSlice{slice(ptr.To(false), https, number), slice(ptr.To(true), https, number)}, ""},
		{"not ready", clusterIP, []*discoveryv1.EndpointSlice{slice(ptr.To(false), https, number)}, "MissingEndpoints"},
		{"another port's name", clusterIP, []*discoveryv1.EndpointSlice{slice(nil, ptr.To("other"), number)}, "MissingEndpoints"},
		{"no port's name", clusterIP, []*discoveryv1.EndpointSlice{slice(nil, nil, number)}, "MissingEndpoints"},
		{"no port", clusterIP, []*discoveryv1.EndpointSlice{slice(nil, https, nil)}, "MissingEndpoints"},
		{"the port and the endpoint in two", clusterIP, []*discoveryv1.EndpointSlice{slice(ptr.To(false), https, number), slice(nil, ptr.To("other"), number)}, "MissingEndpoints"},
	} {
		got := ""
		if problem := serviceProblem(serviceKey{"ns", "svc"}, 443, c.service, c.slices); problem != nil {
			got = problem.Reason
		}
		if got != c.reason {
			t.Errorf("%s: %q, want %q", c.name, got, c.reason)
		}
	}
}

// The time of the last transition changes with the status alone, and the conditions of others stay where they are.
func TestWithCondition(t *testing.T) {
	early, late := time.Unix(100, 0), time.Unix(200, 0)
	foreign := apiregistrationv1.APIServiceCondition{Type: "Foreign", Message: "stays"}
	first := withCondition([]apiregistrationv1.APIServiceCondition{foreign}, condition(apiregistrationv1.ConditionFalse, "A", "a"), early)
	second := withCondition(first, condition(apiregistrationv1.ConditionFalse, "B", "b"), late)
	third := withCondition(append(second, foreign), condition(apiregistrationv1.ConditionTrue, "C", "c"), late)
	if len(third) != 3 || third[0] != foreign || third[2] != foreign {
		t.Errorf("the conditions of others: %+v", third)
	}
	for i, c := range []struct {
		got    apiregistrationv1.APIServiceCondition
		reason string
		at     time.Time
	}{{first[1], "A", early}, {second[1], "B", early}, {third[1], "C", late}} {
		if c.got.Reason != c.reason || !c.got.LastTransitionTime.Time.Equal(c.at) {
			t.Errorf("condition %d is %+v", i, c.got)
		}
	}
}

func TestAggregatedForm(t *testing.T) {
	resources, err := aggregatedForm([]metav1.APIResource{
		{Name: "pods/status", Namespaced: true, Kind: "Pod", Verbs: []string{"get"}}, {Name: "pods", Namespaced: true, Kind: "Pod", SingularName: "pod", ShortNames: []string{"po"}},
		{Name: "nodes/proxy", Verbs: []string{"create"}}, // the resource itself is not listed
	})
	if err != nil || len(resources) != 2 || resources[0].Resource != "pods" || len(resources[0].Subresources) != 1 || resources[0].Subresources[0].ResponseKind.Kind != "Pod" ||
		resources[1].Resource != "nodes" || resources[1].ResponseKind == nil || resources[1].Subresources[0].ResponseKind == nil {
		t.Errorf("%+v, %v", resources, err)
	}
	if _, err := aggregatedForm([]metav1.APIResource{{Name: "pods", Namespaced: true}, {Name: "pods/status"}}); err == nil || !strings.Contains(err.Error(), "scope do not match") {
		t.Errorf("a subresource of another scope: %v", err)
	}
}

func TestIsDiscovery(t *testing.T) {
	for path, want := range map[string]bool{"/apis/a.example.com/v1": true, "/apis/a.example.com/v1/": true, "/apis/a.example.com/v1/pods": false, "/api/v1/pods": false, "/apis": false} {
		if got := isDiscovery(path); got != want {
			t.Errorf("%s: %t", path, got)
		}
	}
}
