//go:build linux

package proxytest

import (
	"fmt"
	"net"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/network/proxy/model"
)

// Service is a Service under test, with its EndpointSlices. It is deleted when the test ends.
type Service struct {
	w      *Cluster
	Object *corev1.Service
	slices map[string]*discoveryv1.EndpointSlice
}

// port is the TCP and UDP port of Services under test.
const port = 80

// NewService creates a Service with two ports, TCP and UDP, cluster IPs of both families and the named endpoints: "pod0" or "far", with a prefix
// "!" if it is not ready, "~" if it is terminating and still serves. change may modify the Service before it is created.
func (w *Cluster) NewService(t *testing.T, change func(*corev1.Service), endpoints ...string) *Service {
	t.Helper()
	w.number++
	v4, v6 := fmt.Sprintf("10.43.%d.%d", w.number/250, w.number%250+1), fmt.Sprintf("fd43::%x", w.number)
	s := &Service{w: w, slices: map[string]*discoveryv1.EndpointSlice{}, Object: &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("svc-", w.number)},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: v4, ClusterIPs: []string{v4, v6},
			Ports: []corev1.ServicePort{{Name: "t", Protocol: corev1.ProtocolTCP, Port: port}, {Name: "u", Protocol: corev1.ProtocolUDP, Port: port}},
		},
	}}
	if change != nil {
		change(s.Object)
	}
	w.Tracker.SetService(s.Object)
	s.setEndpoints(endpoints)
	w.Sync(t)
	t.Cleanup(func() { s.Delete(t) })
	return s
}

// Update changes the Service.
func (s *Service) Update(t *testing.T, change func(*corev1.Service)) {
	t.Helper()
	s.Object = s.Object.DeepCopy()
	change(s.Object)
	s.w.Tracker.SetService(s.Object)
	s.w.Sync(t)
}

// SetEndpoints replaces the endpoints of the Service.
func (s *Service) SetEndpoints(t *testing.T, endpoints ...string) {
	t.Helper()
	s.setEndpoints(endpoints)
	s.w.Sync(t)
}

// Delete deletes the Service, if it still exists.
func (s *Service) Delete(t *testing.T) {
	t.Helper()
	s.w.Tracker.DeleteService(types.NamespacedName{Namespace: s.Object.Namespace, Name: s.Object.Name})
	for _, slice := range s.slices {
		s.w.Tracker.DeleteSlice(slice)
	}
	s.w.Sync(t)
}

func (s *Service) setEndpoints(names []string) {
	for kind, family := range map[discoveryv1.AddressType]model.Family{discoveryv1.AddressTypeIPv4: model.IPv4, discoveryv1.AddressTypeIPv6: model.IPv6} {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: s.Object.Namespace, Name: s.Object.Name + "-" + string(kind), Labels: map[string]string{discoveryv1.LabelServiceName: s.Object.Name}},
			AddressType: kind,
		}
		for i := range s.Object.Spec.Ports {
			p := s.Object.Spec.Ports[i]
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: ptr(int32(endpointPort))})
		}
		for _, name := range names {
			slice.Endpoints = append(slice.Endpoints, endpoint(name, family))
		}
		s.w.Tracker.SetSlice(s.slices[string(kind)], slice)
		s.slices[string(kind)] = slice
	}
}

func endpoint(name string, family model.Family) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{NodeName: ptr("here"), Conditions: discoveryv1.EndpointConditions{Ready: ptr(true), Serving: ptr(true), Terminating: ptr(false)}}
	switch name[0] {
	case '!':
		e.Conditions.Ready, e.Conditions.Serving = ptr(false), ptr(false)
		name = name[1:]
	case '~':
		e.Conditions.Ready, e.Conditions.Terminating = ptr(false), ptr(true)
		name = name[1:]
	}
	v4, v6 := FarIP, Far6
	if name == "far" {
		e.NodeName = ptr("there")
	} else {
		i, err := strconv.Atoi(name[len("pod"):])
		if err != nil {
			panic("no such pod: " + name)
		}
		v4, v6 = PodIP(i), Pod6(i)
	}
	e.Addresses = []string{v4}
	if family == model.IPv6 {
		e.Addresses[0] = v6
	}
	return e
}

// At returns the cluster IP and port of a family.
func (s *Service) At(f model.Family) string {
	if f == model.IPv6 {
		return net.JoinHostPort(s.Object.Spec.ClusterIPs[1], strconv.Itoa(port))
	}
	return net.JoinHostPort(s.Object.Spec.ClusterIPs[0], strconv.Itoa(port))
}

func ptr[T any](v T) *T { return &v }
