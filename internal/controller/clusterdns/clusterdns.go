package clusterdns

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"

	"skiff/internal/controller"
)

const (
	loopName = "cluster-dns-controller"
	// managedBy marks what this loop created: it is the value of the label endpointslice.kubernetes.io/managed-by of its slices, and of ownerLabel of its Service.
	managedBy  = "cluster-dns-controller.skiff"
	ownerLabel = "app.kubernetes.io/managed-by"

	namespace = metav1.NamespaceSystem
	name      = "kube-dns"

	defaultPort = 10053

	// PortAnnotation is the annotation of a node that runs a name server: the port that it listens on.
	PortAnnotation = "dns.skiff/port"
)

// key is the loop's only key.
var key = controller.Key{Namespace: namespace, Name: name}

// New returns the loop. Its only key is the Service kube-system/kube-dns.
func New(deps controller.Deps) controller.Loop {
	core := deps.Informers.Core().V1()
	l := &loop{services: core.Services().Lister(), slices: deps.Informers.Discovery().V1().EndpointSlices().Lister(), nodes: core.Nodes().Lister(),
		namespaces: core.Namespaces().Lister(), disabled: deps.Config.DisableClusterDNS, port: int32(cmp.Or(deps.Config.ClusterDNSPort, defaultPort))}
	if deps.Config.ClusterDNS != "" {
		l.address, l.err = netip.ParseAddr(deps.Config.ClusterDNS)
		l.address = l.address.Unmap()
	}
	return controller.Loop{
		Name: loopName, QueueName: "cluster_dns", Workers: 1,
		Watch: []controller.Watch{
			// The namespace always exists: it makes the loop start.
			{Informer: core.Namespaces().Informer(), Type: &corev1.Namespace{}, Keys: only(func(obj metav1.Object) bool { return obj.GetName() == namespace })},
			{Informer: core.Services().Informer(), Type: &corev1.Service{}, Keys: only(func(obj metav1.Object) bool { return controller.KeyOf(obj) == key })},
			{Informer: deps.Informers.Discovery().V1().EndpointSlices().Informer(), Type: &discoveryv1.EndpointSlice{}, Keys: only(func(obj metav1.Object) bool {
				return obj.GetNamespace() == namespace && obj.GetLabels()[discoveryv1.LabelManagedBy] == managedBy
			})},
			{Informer: core.Nodes().Informer(), Type: &corev1.Node{}, Keys: l.ofNode},
		},
		Reconcile: l.reconcile,
	}
}

type loop struct {
	services   corelisters.ServiceLister
	slices     discoverylisters.EndpointSliceLister
	nodes      corelisters.NodeLister
	namespaces corelisters.NamespaceLister

	disabled bool
	address  netip.Addr // invalid if none is configured: then the cluster's DNS is left to others
	err      error      // why the configured address is invalid
	port     int32
}

// only returns a Watch.Keys for a resource of which some objects concern the loop.
func only(concerns func(metav1.Object) bool) func(before, after metav1.Object) []controller.Key {
	return func(before, after metav1.Object) []controller.Key {
		if before != nil && concerns(before) || after != nil && concerns(after) {
			return []controller.Key{key}
		}
		return nil
	}
}

// ofNode returns the key if a node's change affects the endpoints: nodes report often and change seldom.
func (l *loop) ofNode(before, after metav1.Object) []controller.Key {
	was, _ := before.(*corev1.Node)
	is, _ := after.(*corev1.Node)
	if was != nil && is != nil && l.serves(was) == l.serves(is) && zoneOf(was) == zoneOf(is) &&
		addressIn(was, l.address.Is4()) == addressIn(is, l.address.Is4()) {
		return nil
	}
	return []controller.Key{key}
}

// serves reports whether a node is an endpoint: it is ready and runs a name server. Nodes of other distributions run none.
func (l *loop) serves(n *corev1.Node) bool { return serves(n, l.port) }

func serves(n *corev1.Node, port int32) bool {
	return ready(n) && n.DeletionTimestamp == nil && n.Annotations[PortAnnotation] == strconv.Itoa(int(port))
}

// reconcile reads the Service, its slices and the nodes from the caches.
func (l *loop) reconcile(controller.Key, time.Time) controller.Decision {
	o := observed{disabled: l.disabled, address: l.address, port: l.port}
	system, err := l.namespaces.Get(namespace)
	if apierrors.IsNotFound(err) || err == nil && system.DeletionTimestamp != nil {
		return controller.Nothing // nothing can be created in it
	}
	if err != nil {
		return controller.Decision{Err: err}
	}
	if !l.disabled && l.err != nil {
		return controller.Decision{Err: fmt.Errorf("invalid cluster DNS address: %w", l.err)}
	}
	if !l.disabled && !l.address.IsValid() {
		return controller.Nothing
	}
	if o.service, err = l.services.Services(namespace).Get(name); err != nil && !apierrors.IsNotFound(err) {
		return controller.Decision{Err: err}
	}
	ours := labels.SelectorFromSet(labels.Set{discoveryv1.LabelManagedBy: managedBy})
	if o.slices, err = l.slices.EndpointSlices(namespace).List(ours); err != nil {
		return controller.Decision{Err: err}
	}
	if o.nodes, err = l.nodes.List(labels.Everything()); err != nil {
		return controller.Decision{Err: err}
	}
	slices.SortFunc(o.slices, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(o.nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return decide(o)
}
