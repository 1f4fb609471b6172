package apiserver

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"skiff/internal/store/memory"
)

func TestServicesHaveAddresses(t *testing.T) {
	s := newTestServer(t)
	const services, addresses = "/api/v1/namespaces/test/services", "/apis/networking.k8s.io/v1/ipaddresses"
	var own networkingv1.IPAddress
	s.get(addresses+"/10.43.0.1", &own)
	if ref := own.Spec.ParentRef; ref.Name != "kubernetes" || ref.Namespace != "default" {
		t.Errorf("10.43.0.1 belongs to %v", ref)
	}
	if len(own.ManagedFields) != 1 || own.ManagedFields[0].Manager != "kube-apiserver" {
		t.Errorf("managed fields are %v", own.ManagedFields)
	}
	s.must("POST", services, `{"metadata":{"name":"web"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`)
	var svc corev1.Service
	s.get(services+"/web", &svc)
	if !strings.HasPrefix(svc.Spec.ClusterIP, "10.43.") || svc.Spec.Ports[0].NodePort < 30000 {
		t.Errorf("got %v", svc.Spec)
	}
	s.get(addresses+"/"+svc.Spec.ClusterIP, &own)
	// The same manifest again keeps both.
	s.must("PUT", services+"/web", `{"metadata":{"name":"web"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`)
	var again corev1.Service
	s.get(services+"/web", &again)
	if again.Spec.ClusterIP != svc.Spec.ClusterIP || again.Spec.Ports[0].NodePort != svc.Spec.Ports[0].NodePort {
		t.Errorf("got %v, want %v", again.Spec, svc.Spec)
	}
	s.must("DELETE", services+"/web", "")
	s.expect(404, `ipaddresses.networking.k8s.io "`+svc.Spec.ClusterIP+`" not found`, "GET", addresses+"/"+svc.Spec.ClusterIP, "")
}

func TestDefaultServiceCIDRIsSaidToBeReady(t *testing.T) {
	s := newTestServer(t)
	const path = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes"
	var c networkingv1.ServiceCIDR
	s.get(path, &c)
	if len(c.Status.Conditions) != 1 || c.Status.Conditions[0].Type != "Ready" || c.Status.Conditions[0].Status != "True" || len(c.ManagedFields) != 2 {
		t.Errorf("got %v %v", c.Status, c.ManagedFields)
	}
	// What others say of it stays.
	s.must("PATCH", path+"/status", `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Terminating","message":"no","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)
	s.markServiceCIDRReady(t.Context())
	s.get(path, &c)
	if len(c.Status.Conditions) != 1 || c.Status.Conditions[0].Status != "False" {
		t.Errorf("got %v", c.Status)
	}
}

// TestDefaultServiceCIDRIsKept: the default ServiceCIDR is made again after it was deleted, and said to be ready again if nobody says
// anything of it.
func TestDefaultServiceCIDRIsKept(t *testing.T) {
	s := newTestServer(t)
	const path = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes"
	ready := func(what string) (c networkingv1.ServiceCIDR) {
		t.Helper()
		if err := s.feed.Fresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.syncServiceCIDR(t.Context())
		s.get(path, &c)
		if len(c.Status.Conditions) != 1 || c.Status.Conditions[0].Type != "Ready" || c.Status.Conditions[0].Status != "True" {
			t.Errorf("%s: %v", what, c.Status)
		}
		return c
	}
	s.must("PATCH", path+"/status", `{"status":{"conditions":null}}`)
	before := ready("after its condition was removed")
	if again := ready("once more"); again.ResourceVersion != before.ResourceVersion {
		t.Error("it was written without need")
	}
	s.must("DELETE", path, "")
	if after := ready("after it was deleted"); after.UID == before.UID {
		t.Error("it was not deleted")
	}
}

// TestDefaultServiceCIDRBecomesDualStack: it gets the range of the second family when the server is started with one.
func TestDefaultServiceCIDRBecomesDualStack(t *testing.T) {
	kept := memory.New(memory.Options{})
	t.Cleanup(func() { kept.Close() })
	single := []string{"10.43.0.0/16"}
	first, err := New(Options{Store: kept, AdvertiseAddress: "192.0.2.1", Port: 6443, ServiceCIDRs: single, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.Close()
	dual := []string{single[0], "fd43::/112"}
	s := newTestServer(t, func(o *Options) { o.Store, o.ServiceCIDRs = kept, dual })
	s.syncServiceCIDR(t.Context())
	var c networkingv1.ServiceCIDR
	s.get("/apis/networking.k8s.io/v1/servicecidrs/kubernetes", &c)
	if !slices.Equal(c.Spec.CIDRs, dual) {
		t.Errorf("its ranges are %v", c.Spec.CIDRs)
	}
}
