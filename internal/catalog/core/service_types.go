package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// NeedsClusterIP reports whether the service has cluster IPs, including "None".
func NeedsClusterIP(s *corev1.Service) bool { return !isType(s, corev1.ServiceTypeExternalName) }

// NeedsNodePort reports whether every port of the service gets a node port. A service of type LoadBalancer can disable
// them (allocateLoadBalancerNodePorts).
func NeedsNodePort(s *corev1.Service) bool {
	return isType(s, corev1.ServiceTypeNodePort) ||
		isType(s, corev1.ServiceTypeLoadBalancer) && ptr.Deref(s.Spec.AllocateLoadBalancerNodePorts, true)
}

// NeedsHealthCheckNodePort reports whether a load balancer must ask each node if it has a pod of the service.
func NeedsHealthCheckNodePort(s *corev1.Service) bool {
	return isType(s, corev1.ServiceTypeLoadBalancer) && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// dropTypeDependent clears fields that a service of the new type cannot have, unless the client also changed them:
// a client that only changes the type expects the rest to follow. Validation refuses fields that the client did change.
func dropTypeDependent(new, old *corev1.Service) {
	dropInternalPolicy(new)
	n, o := &new.Spec, &old.Spec
	if NeedsClusterIP(old) && !NeedsClusterIP(new) {
		if n.ClusterIP == o.ClusterIP && slices.Equal(n.ClusterIPs, o.ClusterIPs) {
			n.ClusterIP, n.ClusterIPs = "", nil
		}
		if slices.Equal(n.IPFamilies, o.IPFamilies) {
			n.IPFamilies = nil
		}
		if familyPolicy(new) == familyPolicy(old) {
			n.IPFamilyPolicy = nil
		}
	}
	if hasNodePorts(old) && !hasNodePorts(new) && !addsNodePorts(new, old) {
		for i := range n.Ports {
			n.Ports[i].NodePort = 0
		}
	}
	if NeedsHealthCheckNodePort(old) && !NeedsHealthCheckNodePort(new) && n.HealthCheckNodePort == o.HealthCheckNodePort {
		n.HealthCheckNodePort = 0
	}
	if isType(old, corev1.ServiceTypeLoadBalancer) && !isType(new, corev1.ServiceTypeLoadBalancer) {
		if ptr.Equal(n.AllocateLoadBalancerNodePorts, o.AllocateLoadBalancerNodePorts) {
			n.AllocateLoadBalancerNodePorts = nil
		}
		if ptr.Equal(n.LoadBalancerClass, o.LoadBalancerClass) {
			n.LoadBalancerClass = nil
		}
	}
	if isExternal(old) && !isExternal(new) && n.ExternalTrafficPolicy == o.ExternalTrafficPolicy {
		n.ExternalTrafficPolicy = ""
	}
	if !isType(new, corev1.ServiceTypeLoadBalancer) {
		new.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
}

// addsNodePorts reports whether the new service requests node ports that the old one did not have.
func addsNodePorts(new, old *corev1.Service) bool {
	had := nodePorts(old)
	return slices.ContainsFunc(nodePorts(new), func(port int32) bool { return !slices.Contains(had, port) })
}

// nodePorts lists the node ports of a service, in the order of its ports.
func nodePorts(s *corev1.Service) []int32 {
	var ports []int32
	for _, p := range s.Spec.Ports {
		if p.NodePort != 0 {
			ports = append(ports, p.NodePort)
		}
	}
	return ports
}

// dropInternalPolicy clears the internal traffic policy of a service without an address, unless it is invalid anyway.
func dropInternalPolicy(s *corev1.Service) {
	policy := s.Spec.InternalTrafficPolicy
	if !NeedsClusterIP(s) && policy != nil && (*policy == corev1.ServiceInternalTrafficPolicyCluster || *policy == corev1.ServiceInternalTrafficPolicyLocal) {
		s.Spec.InternalTrafficPolicy = nil
	}
}
