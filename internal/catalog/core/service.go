package core

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"skiff/internal/catalog"
	"skiff/internal/catalog/address"
)

// Service is validated after the server has allocated its cluster IPs and node ports: see PrepareAllocation.
var Service = catalog.Resource[corev1.Service]{
	Version: "v1", Kind: "Service", Plural: "services", Short: []string{"svc"}, Categories: []string{"all"}, Namespaced: true,
	Deletion:            catalog.Deletion[corev1.Service]{ReturnsObject: true},
	StorageName:         "services/specs",
	Name:                validation.NameIsDNSLabel,
	CreateOnUpdate:      true,
	UnconditionalUpdate: true,
	Default:             defaultService,
	PrepareCreate:       func(s *corev1.Service, _ catalog.Request) { dropInternalPolicy(s) },
	PrepareUpdate:       dropTypeDependent,
	Validate:            func(s *corev1.Service) field.ErrorList { return validateService(s, nil) },
	ValidateUpdate:      validateServiceUpdate,
	Warnings:            serviceWarnings,
	Status: &catalog.Edit[corev1.Service]{
		ValidateUpdate: validateServiceStatus,
		Warnings:       serviceStatusWarnings,
	},
	Subresources: []catalog.Subresource{
		{Name: "proxy", Kind: "ServiceProxyOptions", Verbs: []string{"create", "delete", "get", "patch", "update"}},
	},
	Fields: []catalog.Field[corev1.Service]{
		{Name: "spec.clusterIP", Value: func(s *corev1.Service) string { return s.Spec.ClusterIP }},
		{Name: "spec.type", Value: func(s *corev1.Service) string { return string(s.Spec.Type) }},
	},
	Columns: []catalog.Column[corev1.Service]{
		catalog.NameColumn[corev1.Service](),
		{Name: "Type", Description: serviceDoc["type"],
			Cell: func(s *corev1.Service, _ time.Time) any { return string(s.Spec.Type) }},
		{Name: "Cluster-IP", Description: serviceDoc["clusterIP"], Cell: clusterIPCell},
		{Name: "External-IP", Description: serviceDoc["externalIPs"],
			Cell: func(s *corev1.Service, _ time.Time) any { return externalIPCell(s) }},
		{Name: "Port(s)", Description: serviceDoc["ports"], Cell: portsCell},
		catalog.AgeColumn[corev1.Service](),
		{Name: "Selector", Description: serviceDoc["selector"], Priority: 1,
			Cell: func(s *corev1.Service, _ time.Time) any { return labels.FormatLabels(s.Spec.Selector) }},
	},
	Complete: true,
}

var serviceDoc = corev1.ServiceSpec{}.SwaggerDoc()

func defaultService(s *corev1.Service) {
	spec := &s.Spec
	defaultSessionAffinity(spec)
	if spec.Type == "" {
		spec.Type = corev1.ServiceTypeClusterIP
	}
	for i := range spec.Ports {
		port := &spec.Ports[i]
		if port.Protocol == "" {
			port.Protocol = corev1.ProtocolTCP
		}
		if port.TargetPort == (intstr.IntOrString{}) || port.TargetPort == (intstr.IntOrString{Type: intstr.String}) {
			port.TargetPort = intstr.FromInt32(port.Port)
		}
	}
	if spec.ExternalTrafficPolicy == "" && isExternal(s) {
		spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	}
	if spec.InternalTrafficPolicy == nil && (isType(s, corev1.ServiceTypeClusterIP) || hasNodePorts(s)) {
		spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyCluster)
	}
	if !isType(s, corev1.ServiceTypeLoadBalancer) {
		return
	}
	if spec.AllocateLoadBalancerNodePorts == nil {
		spec.AllocateLoadBalancerNodePorts = ptr.To(true)
	}
	for i := range s.Status.LoadBalancer.Ingress {
		if ingress := &s.Status.LoadBalancer.Ingress[i]; ingress.IP != "" && ingress.IPMode == nil {
			ingress.IPMode = ptr.To(corev1.LoadBalancerIPModeVIP)
		}
	}
}

func defaultSessionAffinity(spec *corev1.ServiceSpec) {
	switch spec.SessionAffinity {
	case "", corev1.ServiceAffinityNone:
		spec.SessionAffinity, spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
	case corev1.ServiceAffinityClientIP:
		if c := spec.SessionAffinityConfig; c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(corev1.DefaultClientIPServiceAffinitySeconds)}}
		}
	}
}

func isType(s *corev1.Service, t corev1.ServiceType) bool { return s.Spec.Type == t }

// hasNodePorts reports whether ports of the service may be open on every node.
func hasNodePorts(s *corev1.Service) bool {
	return isType(s, corev1.ServiceTypeNodePort) || isType(s, corev1.ServiceTypeLoadBalancer)
}

// isExternal reports whether traffic from outside the cluster can reach the service.
func isExternal(s *corev1.Service) bool {
	return hasNodePorts(s) || isType(s, corev1.ServiceTypeClusterIP) && len(s.Spec.ExternalIPs) > 0
}

func serviceWarnings(s, _ *corev1.Service) []string {
	var warnings []string
	warn := func(text string) { warnings = append(warnings, text) }
	spec, path := &s.Spec, field.NewPath("spec")
	headless := isType(s, corev1.ServiceTypeClusterIP) && spec.ClusterIP == corev1.ClusterIPNone
	named := isType(s, corev1.ServiceTypeExternalName)

	if _, ok := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]; ok {
		warn("annotation " + corev1.DeprecatedAnnotationTopologyAwareHints + " is deprecated, please use " + corev1.AnnotationTopologyMode + " instead")
	}
	if spec.ClusterIP != "" && spec.ClusterIP != corev1.ClusterIPNone {
		for i, ip := range spec.ClusterIPs {
			warnings = append(warnings, address.Warnings(ip, path.Child("clusterIPs").Index(i))...)
		}
	}
	if headless {
		if spec.LoadBalancerIP != "" {
			warn("spec.loadBalancerIP is ignored for headless services")
		}
		if len(spec.ExternalIPs) > 0 {
			warn("spec.externalIPs is ignored for headless services")
		}
		if spec.SessionAffinity != corev1.ServiceAffinityNone {
			warn("spec.SessionAffinity is ignored for headless services")
		}
	}
	for i, ip := range spec.ExternalIPs {
		warnings = append(warnings, address.Warnings(ip, path.Child("externalIPs").Index(i))...)
	}
	if len(spec.ExternalIPs) > 0 && !headless && !named {
		warn("spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	}
	if spec.LoadBalancerIP != "" {
		warnings = append(warnings, address.Warnings(spec.LoadBalancerIP, path.Child("loadBalancerIP"))...)
	}
	for i, cidr := range spec.LoadBalancerSourceRanges {
		warnings = append(warnings, address.CIDRWarnings(cidr, path.Child("loadBalancerSourceRanges").Index(i))...)
	}
	if named && len(spec.ExternalIPs) > 0 {
		warn(`spec.externalIPs is ignored when spec.type is "ExternalName"`)
	}
	if !named && spec.ExternalName != "" {
		warn(`spec.externalName is ignored when spec.type is not "ExternalName"`)
	}
	if ptr.Deref(spec.TrafficDistribution, "") == corev1.ServiceTrafficDistributionPreferClose {
		warn(`spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"`)
	}
	return warnings
}

func serviceStatusWarnings(s, _ *corev1.Service) []string {
	var warnings []string
	for i, ingress := range s.Status.LoadBalancer.Ingress {
		if ingress.IP != "" {
			path := field.NewPath("status", "loadBalancer", "ingress").Index(i)
			warnings = append(warnings, address.Warnings(ingress.IP, path)...)
		}
	}
	return warnings
}

func clusterIPCell(s *corev1.Service, _ time.Time) any {
	if len(s.Spec.ClusterIPs) == 0 {
		return "<none>"
	}
	return s.Spec.ClusterIPs[0]
}

func externalIPCell(s *corev1.Service) string {
	ips := s.Spec.ExternalIPs
	switch s.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		return either(strings.Join(ips, ","), "<none>")
	case corev1.ServiceTypeLoadBalancer:
		return either(strings.Join(slices.Concat(ingressPoints(s), ips), ","), "<pending>")
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	}
	return "<unknown>"
}

// ingressPoints returns the addresses or names of a service's load balancers, sorted.
func ingressPoints(s *corev1.Service) []string {
	var points []string
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		if point := either(ingress.IP, ingress.Hostname); point != "" {
			points = append(points, point)
		}
	}
	slices.Sort(points)
	return slices.Compact(points)
}

func portsCell(s *corev1.Service, _ time.Time) any {
	return either(join(s.Spec.Ports, func(p corev1.ServicePort) string {
		text := strconv.Itoa(int(p.Port))
		if p.NodePort > 0 {
			text += ":" + strconv.Itoa(int(p.NodePort))
		}
		return text + "/" + string(p.Protocol)
	}), "<none>")
}
