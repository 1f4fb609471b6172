package loadbalancer

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"

	"skiff/internal/controller"
)

// New returns the loop. Its keys are Services.
func New(deps controller.Deps) controller.Loop {
	services, nodes, endpoints := deps.Informers.Core().V1().Services(), deps.Informers.Core().V1().Nodes(), deps.Informers.Discovery().V1().EndpointSlices()
	l := &loop{services: services.Lister(), nodes: nodes.Lister(), slices: endpoints.Lister()}
	return controller.Loop{
		Name: "service-lb-controller", ServiceAccount: "service-controller", EventSource: "service-controller", QueueName: "service",
		Watch: []controller.Watch{
			{Informer: services.Informer(), Type: &corev1.Service{}, Keys: l.ofService},
			{Informer: nodes.Informer(), Type: &corev1.Node{}, Keys: l.ofNode},
			{Informer: endpoints.Informer(), Type: &discoveryv1.EndpointSlice{}, Keys: l.ofSlice},
		},
		Reconcile: l.reconcile,
	}
}

type loop struct {
	services corelisters.ServiceLister
	nodes    corelisters.NodeLister
	slices   discoverylisters.EndpointSliceLister
}

// ours reports whether a Service gets its addresses from this loop.
func ours(s *corev1.Service) bool {
	return s != nil && s.DeletionTimestamp == nil && s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.LoadBalancerClass == nil
}

// ofService returns the Service, and all others if it frees or takes ports.
func (l *loop) ofService(before, after metav1.Object) []controller.Key {
	was, _ := before.(*corev1.Service)
	is, _ := after.(*corev1.Service)
	if ours(was) != ours(is) || ours(was) && ours(is) && !slices.Equal(ports(was), ports(is)) {
		return l.all()
	}
	if ours(is) {
		return []controller.Key{controller.KeyOf(is)}
	}
	return nil
}

func (l *loop) ofNode(before, after metav1.Object) []controller.Key {
	was, _ := before.(*corev1.Node)
	is, _ := after.(*corev1.Node)
	if was != nil && is != nil && takesTraffic(was) == takesTraffic(is) && slices.Equal(was.Status.Addresses, is.Status.Addresses) &&
		was.Status.DaemonEndpoints == is.Status.DaemonEndpoints {
		return nil // nodes report often and change seldom
	}
	return l.all()
}

func (l *loop) ofSlice(before, after metav1.Object) []controller.Key {
	var keys []controller.Key
	for _, o := range []metav1.Object{before, after} {
		slice, ok := o.(*discoveryv1.EndpointSlice)
		if !ok || slice == nil {
			continue
		}
		key := controller.Key{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
		if s, err := l.services.Services(key.Namespace).Get(key.Name); err == nil && ours(s) && isLocal(s) && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// all returns all Services that get their addresses from this loop.
func (l *loop) all() []controller.Key {
	list, err := l.services.List(labels.Everything())
	if err != nil {
		return nil // listers over caches do not fail
	}
	var keys []controller.Key
	for _, s := range list {
		if ours(s) {
			keys = append(keys, controller.KeyOf(s))
		}
	}
	return keys
}

// reconcile reads the Service, the others, the nodes and its endpoints from the caches.
func (l *loop) reconcile(key controller.Key, _ time.Time) controller.Decision {
	s, err := l.services.Services(key.Namespace).Get(key.Name)
	if err != nil || !ours(s) {
		return controller.Nothing
	}
	var o observed
	all, err := l.services.List(labels.Everything())
	if err != nil {
		return controller.Decision{Err: err}
	}
	for _, other := range all {
		if ours(other) && other.UID != s.UID {
			o.others = append(o.others, other)
		}
	}
	if o.nodes, err = l.nodes.List(labels.Everything()); err != nil {
		return controller.Decision{Err: err}
	}
	if o.slices, err = l.slices.EndpointSlices(key.Namespace).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: key.Name})); err != nil {
		return controller.Decision{Err: err}
	}
	if o.api, err = l.slices.EndpointSlices(metav1.NamespaceDefault).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: "kubernetes"})); err != nil {
		return controller.Decision{Err: err}
	}
	return decide(s, o)
}

// observed holds the state besides the Service that a decision is made from.
type observed struct {
	others []*corev1.Service // other Services that get addresses from this loop
	nodes  []*corev1.Node
	slices []*discoveryv1.EndpointSlice // slices of the Service
	api    []*discoveryv1.EndpointSlice // slices of the API server's Service
}

// decide returns which addresses a Service gets.
func decide(s *corev1.Service, o observed) controller.Decision {
	var want []corev1.LoadBalancerIngress
	refused := o.refusal(s)
	if refused == "" {
		want = o.addresses(s)
	}
	if slices.EqualFunc(s.Status.LoadBalancer.Ingress, want, func(a, b corev1.LoadBalancerIngress) bool {
		return a.IP == b.IP && a.Hostname == "" && (a.IPMode == nil || *a.IPMode == corev1.LoadBalancerIPModeVIP)
	}) {
		if refused != "" {
			return controller.Decision{Actions: []controller.Action{controller.Event(s, corev1.EventTypeWarning, "SyncLoadBalancerFailed", "Error syncing load balancer: %s", refused)}}
		}
		return controller.Nothing
	}
	changed := s.DeepCopy()
	mode := corev1.LoadBalancerIPModeVIP
	for i := range want {
		want[i].IPMode = &mode
	}
	changed.Status.LoadBalancer.Ingress = want
	actions := []controller.Action{controller.UpdateStatus(changed)}
	switch {
	case refused != "":
		actions = append(actions, controller.Event(s, corev1.EventTypeWarning, "SyncLoadBalancerFailed", "Error syncing load balancer: %s", refused))
	case len(want) > 0:
		actions = append(actions, controller.Event(s, corev1.EventTypeNormal, "EnsuredLoadBalancer", "Ensured load balancer"))
	}
	return controller.Decision{Actions: actions}
}

// refusal returns why a Service gets no address, or "". Ports go to the Services that come first, all of a Service's or none.
func (o observed) refusal(s *corev1.Service) string {
	reserved, taken := o.reserved(), map[port]*corev1.Service{}
	why := func(s *corev1.Service) string {
		for _, p := range ports(s) {
			if what, ok := reserved[p.number]; ok && p.protocol == corev1.ProtocolTCP {
				return fmt.Sprintf("port %s of the nodes is %s", p, what)
			}
			if other := taken[p]; other != nil {
				return fmt.Sprintf("port %s of the nodes is taken by service %s", p, controller.KeyOf(other))
			}
		}
		return ""
	}
	for _, other := range slices.SortedFunc(slices.Values(o.others), compare) {
		if compare(other, s) > 0 {
			break
		}
		if why(other) == "" {
			for _, p := range ports(other) {
				taken[p] = other
			}
		}
	}
	return why(s)
}

// reserved returns the TCP ports that kubelets and the API server listen on.
func (o observed) reserved() map[int32]string {
	out := map[int32]string{}
	for _, n := range o.nodes {
		if port := n.Status.DaemonEndpoints.KubeletEndpoint.Port; port != 0 {
			out[port] = "the kubelet's"
		}
	}
	for _, slice := range o.api {
		for _, p := range slice.Ports {
			if p.Port != nil {
				out[*p.Port] = "the API's"
			}
		}
	}
	return out
}

// addresses returns the addresses of the nodes that take traffic for the Service, in its IP families.
func (o observed) addresses(s *corev1.Service) []corev1.LoadBalancerIngress {
	var found []netip.Addr
	for _, n := range o.nodes {
		if !takesTraffic(n) || isLocal(s) && !o.hasEndpointOn(n.Name) {
			continue
		}
		for _, a := range n.Status.Addresses {
			ip, err := netip.ParseAddr(a.Address)
			if a.Type != corev1.NodeInternalIP || err != nil {
				continue
			}
			family := corev1.IPv6Protocol
			if ip = ip.Unmap(); ip.Is4() {
				family = corev1.IPv4Protocol
			}
			if slices.Contains(s.Spec.IPFamilies, family) {
				found = append(found, ip)
			}
		}
	}
	slices.SortFunc(found, netip.Addr.Compare)
	found = slices.Compact(found)
	if len(found) > maxAddresses {
		found = found[:maxAddresses]
	}
	var out []corev1.LoadBalancerIngress
	for _, ip := range found {
		out = append(out, corev1.LoadBalancerIngress{IP: ip.String()})
	}
	return out
}

// maxAddresses bounds the addresses of a Service, however many nodes there are: each is an entry on every node.
const maxAddresses = 100

// hasEndpointOn reports whether the Service has a ready endpoint on a node.
func (o observed) hasEndpointOn(node string) bool {
	for _, slice := range o.slices {
		for _, e := range slice.Endpoints {
			ready, terminating := e.Conditions.Ready == nil || *e.Conditions.Ready, e.Conditions.Terminating != nil && *e.Conditions.Terminating
			if e.NodeName != nil && *e.NodeName == node && ready && !terminating {
				return true
			}
		}
	}
	return false
}

// takesTraffic reports whether a node takes traffic from outside.
func takesTraffic(n *corev1.Node) bool {
	if _, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]; excluded || n.DeletionTimestamp != nil {
		return false
	}
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func isLocal(s *corev1.Service) bool {
	return s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// port is a port of the nodes.
type port struct {
	protocol corev1.Protocol
	number   int32
}

// String returns the port for messages.
func (p port) String() string { return fmt.Sprintf("%d/%s", p.number, p.protocol) }

func ports(s *corev1.Service) []port {
	var out []port
	for _, p := range s.Spec.Ports {
		out = append(out, port{cmp.Or(p.Protocol, corev1.ProtocolTCP), p.Port})
	}
	return out
}

// compare sorts the Service first that gets ports first: one that has addresses keeps them; of others it is the older one.
func compare(a, b *corev1.Service) int {
	has := func(s *corev1.Service) int {
		if len(s.Status.LoadBalancer.Ingress) > 0 {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(has(a), has(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
