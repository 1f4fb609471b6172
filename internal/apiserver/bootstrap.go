package apiserver

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver/authz/rbac/bootstrap"
	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/verbs"
	"skiff/internal/catalog"
	"skiff/internal/catalog/flowcontrol"
	"skiff/internal/catalog/scheduling"
)

// bootstrapOrder returns the objects that every cluster has, in steps: those of a step need those of the steps before it.
func (s *Server) bootstrapOrder() [][]catalog.Object {
	var namespaces []catalog.Object
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease} {
		namespaces = append(namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	first := namespaces
	first = append(first, s.defaultServiceCIDR())
	first = append(first, scheduling.Bootstrap()...)
	first = append(first, flowcontrol.Mandatory()...)
	first = append(first, flowcontrol.Suggested()...)
	if s.opts.ResourceMetrics {
		first = append(first, bootstrap.MetricsReader())
	}
	steps := [][]catalog.Object{first, {s.kubernetesService(), legacyTokenTracking(time.Now())}}
	// Pods on other nodes cannot reach a loopback address, so it is not published as an endpoint.
	if ip, err := netip.ParseAddr(s.opts.AdvertiseAddress); err == nil && !ip.IsLoopback() {
		steps = append(steps, []catalog.Object{s.kubernetesEndpoints(), s.kubernetesSlice()})
	}
	return steps
}

// legacyTokenTracking returns the ConfigMap that says since when the use of tokens in Secrets is tracked.
func legacyTokenTracking(since time.Time) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-apiserver-legacy-service-account-token-tracking", Namespace: metav1.NamespaceSystem},
		Data: map[string]string{"since": since.UTC().Format(time.DateOnly)}}
}

// kubernetesService returns the Service through which pods reach the API: at the first address of the service range.
func (s *Server) kubernetesService() *corev1.Service {
	ip := firstAddress(s.opts.ServiceCIDRs[0])
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", Namespace: metav1.NamespaceDefault, Labels: map[string]string{"provider": "kubernetes", "component": "apiserver"}},
		Spec: corev1.ServiceSpec{ClusterIP: ip, ClusterIPs: []string{ip}, SessionAffinity: corev1.ServiceAffinityNone, Type: corev1.ServiceTypeClusterIP,
			Ports: []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443, TargetPort: intstr.FromInt(s.opts.Port)}}},
	}
}

func firstAddress(cidr string) string {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return ""
	}
	return prefix.Masked().Addr().Next().String()
}

func (s *Server) kubernetesEndpoints() *corev1.Endpoints {
	return &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", Namespace: metav1.NamespaceDefault, Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"}},
		Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: s.opts.AdvertiseAddress}},
			Ports: []corev1.EndpointPort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: int32(s.opts.Port)}}}},
	}
}

func (s *Server) kubernetesSlice() *discoveryv1.EndpointSlice {
	family := discoveryv1.AddressTypeIPv4
	if ip, err := netip.ParseAddr(s.opts.AdvertiseAddress); err == nil && ip.Is6() {
		family = discoveryv1.AddressTypeIPv6
	}
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "kubernetes", Namespace: metav1.NamespaceDefault, Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		AddressType: family,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{s.opts.AdvertiseAddress}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("https"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(int32(s.opts.Port))}},
	}
}

// bootstrap creates those objects that every cluster has and that are missing. It retries until all exist or the server stops.
func (s *Server) bootstrap(ctx context.Context) {
	for _, step := range s.bootstrapOrder() {
		var wg sync.WaitGroup
		for _, obj := range step {
			wg.Go(func() { s.ensureObject(ctx, obj) })
		}
		wg.Wait()
	}
	s.markServiceCIDRReady(ctx)
}

// loopbackWrite returns the Write of a change that the server itself makes.
func loopbackWrite() registry.Write {
	return registry.Write{Warn: func(string) {}, Request: catalog.Request{Now: time.Now()}}
}

// ensureObject creates an object unless it exists. It retries with back-off until ctx ends.
func (s *Server) ensureObject(ctx context.Context, obj catalog.Object) {
	for wait := 10 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, time.Second) {
		err := s.createObject(ctx, obj.DeepCopyObject().(catalog.Object))
		if err == nil || apierrors.IsAlreadyExists(err) {
			return
		}
		s.opts.Log.Warn("failed to create an object that every cluster has", "kind", fmt.Sprintf("%T", obj), "name", obj.GetName(), "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// createObject creates an object for the server itself: with the defaults and validation of its kind, but without admission.
func (s *Server) createObject(ctx context.Context, obj catalog.Object) error {
	return s.createObjectAs(ctx, "kube-apiserver", obj)
}

// createObjectAs is createObject as a field manager.
func (s *Server) createObjectAs(ctx context.Context, fieldManager string, obj catalog.Object) error {
	end := s.endpointOfType(obj)
	if end == nil {
		return fmt.Errorf("%T is not served", obj)
	}
	if end.Registry.Cache.Get(end.Registry.Key(obj.GetNamespace(), obj.GetName())) != nil {
		return apierrors.NewAlreadyExists(end.Info.GVR.GroupResource(), obj.GetName())
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	end.Info.Default(obj)
	manager, err := end.Manager("")
	if err != nil {
		return err
	}
	manager.Create(obj, fieldManager)
	_, err = end.Registry.Create(ctx, obj, loopbackWrite())
	return err
}

// endpointOfType returns the endpoint that serves objects of the same Go type; nil if there is none.
func (s *Server) endpointOfType(obj catalog.Object) *verbs.Endpoint {
	want := fmt.Sprintf("%T", obj)
	served := s.api.Served()
	for _, info := range served.Infos {
		if !info.Virtual && fmt.Sprintf("%T", info.New()) == want {
			return served.Endpoints[info.GVR]
		}
	}
	return nil
}
