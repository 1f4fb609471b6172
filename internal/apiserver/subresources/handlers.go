package subresources

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	authnconfig "skiff/internal/apiserver/authn/config"
	"skiff/internal/apiserver/verbs"
	"skiff/internal/usage"
)

// Options are what the handlers work with. All are required unless noted.
type Options struct {
	API            *verbs.API
	Authentication *authnconfig.Authentication
	EtcdPrefix     string // with which the keys of all objects begin; some errors show it
	// StoreHealthy returns why the store cannot be used, or nil.
	StoreHealthy func(context.Context) error

	// Dial connects to kubelets, pods and services.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// KubeletTLS returns the client certificate for kubelets and how theirs is verified. It is called for each connection, as certificates are
	// renewed. Without it no certificate is sent or verified.
	KubeletTLS func() (*tls.Config, error)
	// KubeletAddresses are the types of a node's addresses to try for its kubelet, in order.
	KubeletAddresses []corev1.NodeAddressType
	// AddressType is that of the cluster's primary IP family: the service proxy prefers endpoints of it.
	AddressType discoveryv1.AddressType

	// ResourceMetrics has metrics.k8s.io served. LocalUsage returns what a node of this process and its containers have used; nil for other nodes. It may be nil.
	ResourceMetrics bool
	LocalUsage      func(node string) *usage.Reading
	// Measured is called with the metrics of a node whenever they were measured. It may be nil.
	Measured func(*usage.NodeMetrics)
	Log      *slog.Logger
}

// handlers serve what no generic verb serves.
type handlers struct{ Options }

// Register adds the handlers to the API, and returns what measures nodes and pods for some of them.
func Register(o Options) *usage.Meter {
	h := &handlers{o}
	add := func(group, plural, subresource string, handle verbs.Handler) {
		o.API.Handlers[verbs.HandlerKey{Resource: schema.GroupResource{Group: group, Resource: plural}, Subresource: subresource}] = handle
	}
	add("", "pods", "binding", h.bind)
	add("", "bindings", "", h.bind)
	add("", "pods", "eviction", h.evict)
	add("", "serviceaccounts", "token", h.requestToken)
	add("", "componentstatuses", "", ComponentStatuses(schedulerHealth, controllerManagerHealth, o.StoreHealthy))
	add("authentication.k8s.io", "selfsubjectreviews", "", h.reviews(h.reviewSelfSubject))
	add("authentication.k8s.io", "tokenreviews", "", h.reviews(h.reviewToken))
	add("authorization.k8s.io", "subjectaccessreviews", "", h.reviews(h.reviewAccess))
	add("authorization.k8s.io", "localsubjectaccessreviews", "", h.reviews(h.reviewLocalAccess))
	add("authorization.k8s.io", "selfsubjectaccessreviews", "", h.reviews(h.reviewSelfAccess))
	add("authorization.k8s.io", "selfsubjectrulesreviews", "", h.reviews(h.reviewSelfRules))
	c := NewConnector(o)
	add("", "pods", "log", c.log)
	add("", "pods", "exec", c.stream("exec", streamParameters))
	add("", "pods", "attach", c.stream("attach", streamParameters))
	add("", "pods", "portforward", c.stream("portForward", portParameters))
	add("", "pods", "proxy", c.proxy(c.podLocation))
	add("", "nodes", "proxy", c.proxy(c.nodeLocation))
	add("", "services", "proxy", c.proxy(c.ServiceLocation))
	m := &meter{usage.New(usage.Options{Read: c.readings(o.LocalUsage), Measured: o.Measured, Log: o.Log}), o.API}
	if o.ResourceMetrics {
		add(metricsv1beta1.GroupName, "nodes", "", m.serve(m.getNode, m.listNodes))
		add(metricsv1beta1.GroupName, "pods", "", m.serve(m.getPod, m.listPods))
	}
	return m.Meter
}
