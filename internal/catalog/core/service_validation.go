package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"skiff/internal/catalog/address"
	"skiff/internal/catalog/check"
)

const onlyLoadBalancer = "may only be used when `type` is 'LoadBalancer'"

// validateService validates a service that has been defaulted and has its addresses and ports; old is nil on create.
func validateService(s, old *corev1.Service) field.ErrorList {
	p := check.At(nil)
	validateTopologyAnnotations(p, s)
	spec := p.Child("spec")
	validateForType(spec, s)
	for i := range s.Spec.Ports {
		validateServicePort(spec.Item("ports", i), s.Spec.Ports, i)
	}
	if len(s.Spec.Selector) > 0 {
		p.Add(metav1validation.ValidateLabels(s.Spec.Selector, spec.Path("selector"))...)
	}
	validateSessionAffinity(spec, s)
	validateClusterIPs(spec, s, old)
	validateExternalIPs(spec, s, old)
	check.OneOf(spec, "type", s.Spec.Type, corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName,
		corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort)
	validateNodePorts(spec, s)
	validateSourceRanges(p, s, old)
	if s.Spec.AllocateLoadBalancerNodePorts != nil && !isType(s, corev1.ServiceTypeLoadBalancer) {
		spec.Forbidden("allocateLoadBalancerNodePorts", onlyLoadBalancer)
	}
	validateLoadBalancerClass(spec, s)
	validateTrafficPolicies(spec, s)
	return p.Errors()
}

func validateServiceUpdate(new, old *corev1.Service) field.ErrorList {
	p := check.At(nil)
	spec := p.Child("spec")
	validateClusterIPsChange(spec, new, old)
	if isType(new, corev1.ServiceTypeLoadBalancer) && isType(old, corev1.ServiceTypeLoadBalancer) &&
		!ptr.Equal(new.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass) {
		spec.Invalid("loadBalancerClass", new.Spec.LoadBalancerClass, "may not change once set")
	}
	validateLoadBalancerClass(spec, new)
	if NeedsHealthCheckNodePort(new) && NeedsHealthCheckNodePort(old) && new.Spec.HealthCheckNodePort != old.Spec.HealthCheckNodePort {
		spec.Forbidden("healthCheckNodePort", "field is immutable")
	}
	return append(p.Errors(), validateService(new, old)...)
}

// validateTopologyAnnotations requires the old and the new name of the same setting to agree.
func validateTopologyAnnotations(p *check.Part, s *corev1.Service) {
	hints, hasHints := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	mode, hasMode := s.Annotations[corev1.AnnotationTopologyMode]
	if hasHints && hasMode && hints != mode {
		p.Add(field.Invalid(field.NewPath("metadata", "annotations").Key(corev1.AnnotationTopologyMode), mode,
			"must match annotations["+corev1.DeprecatedAnnotationTopologyAwareHints+"] when both are specified"))
	}
}

func validateForType(p *check.Part, s *corev1.Service) {
	if len(s.Spec.Ports) == 0 && !isHeadless(s) && NeedsClusterIP(s) {
		p.Required("ports", "")
	}
	if isHeadless(s) && hasNodePorts(s) {
		p.Item("clusterIPs", 0).Invalid("", corev1.ClusterIPNone, "may not be set to 'None' for "+string(s.Spec.Type)+" services")
	}
	if NeedsClusterIP(s) {
		return
	}
	const msg = "may not be set for ExternalName services"
	if len(s.Spec.ClusterIPs) > 0 {
		p.Forbidden("clusterIPs", msg)
	}
	if len(s.Spec.IPFamilies) > 0 {
		p.Forbidden("ipFamilies", msg)
	}
	if s.Spec.IPFamilyPolicy != nil {
		p.Forbidden("ipFamilyPolicy", msg)
	}
	// A trailing dot marks an absolute name.
	if name := strings.TrimSuffix(s.Spec.ExternalName, "."); name == "" {
		p.Required("externalName", "")
	} else {
		p.Format("externalName", name, utilvalidation.IsDNS1123Subdomain)
	}
}

func validateServicePort(p *check.Part, ports []corev1.ServicePort, i int) {
	port := &ports[i]
	if port.Name != "" {
		p.Format("name", port.Name, utilvalidation.IsDNS1123Label)
		if slices.ContainsFunc(ports[:i], func(o corev1.ServicePort) bool { return o.Name == port.Name }) {
			p.Add(field.Duplicate(p.Path("name"), port.Name))
		}
	} else if len(ports) > 1 {
		p.Required("name", "")
	}
	validatePortNumber(p, "port", port.Port)
	validateProtocol(p, port.Protocol)
	switch target := port.TargetPort; target.Type {
	case intstr.Int:
		validatePortNumber(p, "targetPort", target.IntVal)
	default:
		p.Format("targetPort", target.StrVal, utilvalidation.IsValidPortName)
	}
	if port.AppProtocol != nil {
		p.Format("appProtocol", *port.AppProtocol, utilvalidation.IsQualifiedName)
	}
}

func validateSessionAffinity(p *check.Part, s *corev1.Service) {
	check.OneOf(p, "sessionAffinity", s.Spec.SessionAffinity, corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)
	if s.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return
	}
	const most = 86400 // a day
	if seconds := *s.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds; seconds <= 0 || seconds > most {
		p.Child("sessionAffinityConfig").Child("clientIP").Invalid("timeoutSeconds", seconds,
			fmt.Sprintf("must be greater than 0 and less than %d", most))
	}
}

func validateExternalIPs(p *check.Part, s, old *corev1.Service) {
	var kept []string
	if old != nil {
		kept = old.Spec.ExternalIPs
	}
	for i, ip := range s.Spec.ExternalIPs {
		if address.IsOrdinary(ip) {
			continue
		}
		at := p.Path("externalIPs").Index(i)
		errs := address.IP(ip, kept, at)
		if len(errs) == 0 {
			errs = address.Endpoint(ip, at)
		}
		p.Add(errs...)
	}
}

// validateNodePorts validates node ports and refuses two ports with the same protocol and number.
func validateNodePorts(p *check.Part, s *corev1.Service) {
	ports := s.Spec.Ports
	if isType(s, corev1.ServiceTypeClusterIP) {
		for i := range ports {
			if ports[i].NodePort != 0 {
				p.Item("ports", i).Forbidden("nodePort", "may not be used when `type` is 'ClusterIP'")
			}
		}
	}
	for i, port := range ports {
		same := func(o corev1.ServicePort) bool { return o.Protocol == port.Protocol && o.NodePort == port.NodePort }
		if port.NodePort != 0 && slices.ContainsFunc(ports[:i], same) {
			p.Add(field.Duplicate(p.Item("ports", i).Path("nodePort"), port.NodePort))
		}
	}
	for i, port := range ports {
		same := func(o corev1.ServicePort) bool { return o.Protocol == port.Protocol && o.Port == port.Port }
		if slices.ContainsFunc(ports[:i], same) {
			p.Add(field.Duplicate(p.Item("ports", i).Path(), check.Internal(corev1.ServicePort{Protocol: port.Protocol, Port: port.Port})))
		}
	}
}

// validateSourceRanges validates loadBalancerSourceRanges. They were an annotation first, so values may be
// padded with spaces.
func validateSourceRanges(p *check.Part, s, old *corev1.Service) {
	ranges := s.Spec.LoadBalancerSourceRanges
	annotation, annotated := s.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]
	if len(ranges) == 0 && !annotated {
		return
	}
	path := field.NewPath("metadata", "annotations").Key(corev1.AnnotationLoadBalancerSourceRangesKey)
	if len(ranges) > 0 {
		path = field.NewPath("spec", "LoadBalancerSourceRanges")
	}
	if !isType(s, corev1.ServiceTypeLoadBalancer) {
		p.Add(field.Forbidden(path, onlyLoadBalancer))
	}
	if len(ranges) > 0 {
		var kept []string
		if old != nil {
			kept = trimmed(old.Spec.LoadBalancerSourceRanges)
		}
		for i, cidr := range trimmed(ranges) {
			p.Add(address.CIDR(cidr, kept, path.Index(i))...)
		}
		return
	}
	unchanged := old != nil && old.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey] == annotation
	if unchanged || strings.TrimSpace(annotation) == "" {
		return
	}
	for _, cidr := range trimmed(strings.Split(annotation, ",")) {
		p.Add(address.CIDR(cidr, nil, path)...)
	}
}

func trimmed(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = strings.TrimSpace(s)
	}
	return out
}

func validateLoadBalancerClass(p *check.Part, s *corev1.Service) {
	class := s.Spec.LoadBalancerClass
	switch {
	case class == nil:
	case isType(s, corev1.ServiceTypeLoadBalancer):
		p.Format("loadBalancerClass", *class, utilvalidation.IsQualifiedName)
	default:
		p.Forbidden("loadBalancerClass", onlyLoadBalancer)
	}
}

func validateTrafficPolicies(p *check.Part, s *corev1.Service) {
	if policy := s.Spec.ExternalTrafficPolicy; isExternal(s) {
		check.OneOf(p, "externalTrafficPolicy", policy, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	} else if policy != "" {
		p.Invalid("externalTrafficPolicy", policy, "may only be set for externally-accessible services")
	}
	switch port := s.Spec.HealthCheckNodePort; {
	case NeedsHealthCheckNodePort(s) && port == 0:
		p.Required("healthCheckNodePort", "")
	case NeedsHealthCheckNodePort(s):
		validatePortNumber(p, "healthCheckNodePort", port)
	case port != 0:
		p.Invalid("healthCheckNodePort", port, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'")
	}
	if policy := s.Spec.InternalTrafficPolicy; policy != nil {
		check.OneOf(p, "internalTrafficPolicy", *policy, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)
	}
	if distribution := s.Spec.TrafficDistribution; distribution != nil {
		check.OneOf(p, "trafficDistribution", *distribution, corev1.ServiceTrafficDistributionPreferClose,
			corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode)
	}
}

// validateServiceStatus validates the load balancer's status.
func validateServiceStatus(new, old *corev1.Service) field.ErrorList {
	p := check.At(field.NewPath("status", "loadBalancer"))
	ingresses := new.Status.LoadBalancer.Ingress
	if len(ingresses) > 0 && !isType(new, corev1.ServiceTypeLoadBalancer) {
		p.Forbidden("ingress", "may only be used when `spec.type` is 'LoadBalancer'")
		return p.Errors()
	}
	var kept []string
	for _, ingress := range old.Status.LoadBalancer.Ingress {
		kept = append(kept, ingress.IP)
	}
	for i := range ingresses {
		validateIngress(p.Item("ingress", i), &ingresses[i], kept)
	}
	return p.Errors()
}

func validateIngress(p *check.Part, ingress *corev1.LoadBalancerIngress, kept []string) {
	if ingress.IP != "" {
		p.Add(address.IP(ingress.IP, kept, p.Path("ip"))...)
	}
	switch mode := ingress.IPMode; {
	case mode == nil && ingress.IP != "":
		p.Required("ipMode", "must be specified when `ip` is set")
	case mode == nil:
	case ingress.IP == "":
		p.Forbidden("ipMode", "may not be specified when `ip` is not set")
	default:
		check.OneOf(p, "ipMode", *mode, corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP)
	}
	if ingress.Hostname != "" {
		p.Format("hostname", ingress.Hostname, utilvalidation.IsDNS1123Subdomain)
		if netutils.ParseIPSloppy(ingress.Hostname) != nil {
			p.Invalid("hostname", ingress.Hostname, "must be a DNS name, not an IP address")
		}
	}
}
