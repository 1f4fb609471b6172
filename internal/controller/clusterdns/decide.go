package clusterdns

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"skiff/internal/controller"
)

// maxEndpoints is how many endpoints a slice holds at most.
const maxEndpoints = 100

// observed holds the state that a decision is made from, sorted by name.
type observed struct {
	disabled bool
	address  netip.Addr
	port     int32
	service  *corev1.Service // nil if there is none
	slices   []*discoveryv1.EndpointSlice
	nodes    []*corev1.Node
}

// decide updates the Service and its slices, unless the Service is managed by others.
func decide(o observed) controller.Decision {
	switch {
	case o.service == nil && o.disabled:
		return o.removeSlices()
	case o.service == nil && !slices.ContainsFunc(o.nodes, func(n *corev1.Node) bool { return serves(n, o.port) }):
		return o.removeSlices() // the Service is created with the first name server
	case o.service == nil:
		return controller.Decision{Actions: []controller.Action{controller.Create(o.wanted(nil))}}
	case o.service.DeletionTimestamp != nil:
		return controller.Nothing // it is created again when it is gone
	case !ours(o.service):
		return o.removeSlices()
	case o.disabled || o.service.Spec.ClusterIP != o.address.String():
		d := o.removeSlices()
		d.Actions = append(d.Actions, controller.Delete(o.service, metav1.DeleteOptions{})) // a cluster IP cannot be changed
		return d
	}
	var actions []controller.Action
	if wanted := o.wanted(o.service); !equality.Semantic.DeepEqual(wanted, o.service) {
		actions = append(actions, controller.Update(wanted))
	}
	return controller.Decision{Actions: append(actions, o.endpoints()...)}
}

// ours reports whether this loop created a Service and no one has taken it over since.
func ours(s *corev1.Service) bool {
	return s.Labels[ownerLabel] == managedBy && len(s.Spec.Selector) == 0 && s.Spec.Type != corev1.ServiceTypeExternalName
}

func (o observed) removeSlices() controller.Decision {
	var actions []controller.Action
	for _, slice := range o.slices {
		if slice.DeletionTimestamp == nil {
			actions = append(actions, controller.Delete(slice, metav1.DeleteOptions{}))
		}
	}
	return controller.Decision{Actions: actions}
}

// wanted returns the Service as it should be: the existing one, if any, with the fields that this loop manages.
func (o observed) wanted(is *corev1.Service) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if is != nil {
		s = is.DeepCopy()
	} else {
		single := corev1.IPFamilyPolicySingleStack
		s.Spec.ClusterIP, s.Spec.Type, s.Spec.IPFamilyPolicy = o.address.String(), corev1.ServiceTypeClusterIP, &single
	}
	labels := map[string]string{"k8s-app": name, "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS", ownerLabel: managedBy}
	if s.Labels == nil {
		s.Labels = labels
	} else {
		maps.Copy(s.Labels, labels)
	}
	local := corev1.ServiceInternalTrafficPolicyLocal
	s.Spec.InternalTrafficPolicy = &local
	// The slices have the real ports. The target port is as in add-ons' manifests: applying one over this Service merges ports by number alone and would
	// leave another target port behind.
	ports := []corev1.ServicePort{
		{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53, TargetPort: intstr.FromInt32(53)},
		{Name: "dns-tcp", Protocol: corev1.ProtocolTCP, Port: 53, TargetPort: intstr.FromInt32(53)},
	}
	if !equality.Semantic.DeepEqual(s.Spec.Ports, ports) {
		s.Spec.Ports = ports
	}
	return s
}

// endpoints updates the slices. Endpoints stay in their slice; new ones go where there is room.
func (o observed) endpoints() []controller.Action {
	wanted := map[string]discoveryv1.Endpoint{} // by node
	var order []string
	for _, node := range o.nodes {
		if addr := addressIn(node, o.address.Is4()); addr != "" && serves(node, o.port) {
			wanted[node.Name] = endpoint(node, addr)
			order = append(order, node.Name)
		}
	}
	updated := make([]*discoveryv1.EndpointSlice, 0, len(o.slices))
	names := map[string]bool{}
	var actions []controller.Action
	for _, slice := range o.slices {
		names[slice.Name] = true
		if slice.DeletionTimestamp != nil {
			continue
		}
		if slice.AddressType != o.family() {
			actions = append(actions, controller.Delete(slice, metav1.DeleteOptions{}))
			continue
		}
		next := o.slice(slice)
		for i := range slice.Endpoints {
			node := slice.Endpoints[i].NodeName
			if node == nil {
				continue
			}
			if e, ok := wanted[*node]; ok && len(next.Endpoints) < maxEndpoints {
				next.Endpoints = append(next.Endpoints, e)
				delete(wanted, *node)
			}
		}
		updated = append(updated, next)
	}
	room := 0
	for _, node := range order {
		e, missing := wanted[node]
		if !missing {
			continue
		}
		for room < len(updated) && len(updated[room].Endpoints) == maxEndpoints {
			room++
		}
		if room == len(updated) {
			updated = append(updated, o.slice(nil))
		}
		updated[room].Endpoints = append(updated[room].Endpoints, e)
	}
	return append(actions, o.write(updated, names)...)
}

// write returns the creations, updates and deletions that turn the observed slices into the updated ones.
func (o observed) write(updated []*discoveryv1.EndpointSlice, names map[string]bool) []controller.Action {
	before := map[string]*discoveryv1.EndpointSlice{}
	for _, slice := range o.slices {
		before[slice.Name] = slice
	}
	var actions []controller.Action
	free := 0
	for _, slice := range updated {
		was := before[slice.Name]
		switch {
		case was == nil:
			for ; slice.Name == "" || names[slice.Name]; free++ {
				slice.Name = fmt.Sprintf("%s-%s-%d", name, map[bool]string{true: "ipv4", false: "ipv6"}[o.address.Is4()], free)
			}
			actions = append(actions, controller.Create(slice))
		case len(slice.Endpoints) == 0:
			actions = append(actions, controller.Delete(was, metav1.DeleteOptions{}))
		case !equality.Semantic.DeepEqual(was, slice):
			actions = append(actions, controller.Update(slice))
		}
	}
	return actions
}

func (o observed) family() discoveryv1.AddressType {
	if o.address.Is4() {
		return discoveryv1.AddressTypeIPv4
	}
	return discoveryv1.AddressTypeIPv6
}

// slice returns a slice as it should be, without its endpoints.
func (o observed) slice(is *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, AddressType: o.family()}
	if is != nil {
		s = is.DeepCopy()
	}
	if s.Labels == nil {
		s.Labels = map[string]string{}
	}
	s.Labels[discoveryv1.LabelServiceName], s.Labels[discoveryv1.LabelManagedBy] = name, managedBy
	s.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(o.service, corev1.SchemeGroupVersion.WithKind("Service"))}
	udp, tcp, dns, dnsTCP, port, portTCP := corev1.ProtocolUDP, corev1.ProtocolTCP, "dns", "dns-tcp", o.port, o.port
	s.Ports = []discoveryv1.EndpointPort{{Name: &dns, Protocol: &udp, Port: &port}, {Name: &dnsTCP, Protocol: &tcp, Port: &portTCP}}
	s.Endpoints = nil
	return s
}

// endpoint returns the endpoint of a node's name server.
func endpoint(node *corev1.Node, addr string) discoveryv1.Endpoint {
	yes, no := true, false
	e := discoveryv1.Endpoint{Addresses: []string{addr}, NodeName: &node.Name,
		Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no}}
	if zone := zoneOf(node); zone != "" {
		e.Zone = &zone
	}
	return e
}

func zoneOf(node *corev1.Node) string { return node.Labels[corev1.LabelTopologyZone] }

// addressIn returns the internal IP of a node in one family, or "".
func addressIn(node *corev1.Node, v4 bool) string {
	for _, a := range node.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		if addr, err := netip.ParseAddr(a.Address); err == nil && addr.Unmap().Is4() == v4 {
			return addr.Unmap().String()
		}
	}
	return ""
}

func ready(node *corev1.Node) bool {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
