package core

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"skiff/internal/catalog/address"
	"skiff/internal/catalog/check"
)

// isHeadless reports whether the service has no cluster IP: clients connect to its pods directly.
func isHeadless(s *corev1.Service) bool {
	return len(s.Spec.ClusterIPs) == 1 && s.Spec.ClusterIPs[0] == corev1.ClusterIPNone
}

func familyPolicy(s *corev1.Service) corev1.IPFamilyPolicy {
	return ptr.Deref(s.Spec.IPFamilyPolicy, "")
}

// validateClusterIPs checks the linked fields clusterIP, clusterIPs, ipFamilies and ipFamilyPolicy.
func validateClusterIPs(p *check.Part, s, old *corev1.Service) {
	if !NeedsClusterIP(s) {
		return
	}
	spec := &s.Spec
	switch {
	case spec.ClusterIP == "" && len(spec.ClusterIPs) > 0:
		p.Invalid("clusterIPs", spec.ClusterIPs, "must be empty when `clusterIP` is not specified")
	case spec.ClusterIP != "" && len(spec.ClusterIPs) == 0:
		p.Required("clusterIPs", "")
	case spec.ClusterIP != "" && spec.ClusterIPs[0] != spec.ClusterIP:
		p.Invalid("clusterIPs", spec.ClusterIPs, "first value must match `clusterIP`")
	}
	for i, family := range spec.IPFamilies {
		item := p.Item("ipFamilies", i)
		check.OneOf(item, "", family, corev1.IPv4Protocol, corev1.IPv6Protocol)
		if slices.Contains(spec.IPFamilies[:i], family) {
			item.Add(field.Duplicate(item.Path(), family))
		}
	}
	if spec.IPFamilyPolicy != nil {
		check.OneOf(p, "ipFamilyPolicy", *spec.IPFamilyPolicy, corev1.IPFamilyPolicyPreferDualStack,
			corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack)
	}
	if validateEachClusterIP(p, s, old) {
		validateClusterIPFamilies(p, s)
	}
}

// validateEachClusterIP validates each cluster IP and reports whether all are addresses, so that they can be validated together.
func validateEachClusterIP(p *check.Part, s, old *corev1.Service) bool {
	var kept []string
	if old != nil {
		kept = old.Spec.ClusterIPs
	}
	ips, sound := s.Spec.ClusterIPs, true
	for i, ip := range ips {
		if i == 0 && ip == corev1.ClusterIPNone {
			if len(ips) > 1 {
				p.Invalid("clusterIPs", ips, "'None' must be the first and only value")
				sound = false
			}
			continue
		}
		if address.IsOrdinary(ip) {
			continue
		}
		errs := address.IP(ip, kept, p.Path("clusterIPs").Index(i))
		p.Add(errs...)
		sound = sound && len(errs) == 0
	}
	if len(ips) > 2 {
		p.Invalid("clusterIPs", ips, "may only hold up to 2 values")
	}
	return sound
}

// validateClusterIPFamilies requires one address of each of the service's families, in their order.
func validateClusterIPFamilies(p *check.Part, s *corev1.Service) {
	ips := s.Spec.ClusterIPs
	if len(ips) > 1 {
		if dual, err := netutils.IsDualStackIPStrings(ips); err != nil || !dual {
			p.Invalid("clusterIPs", ips, "may specify no more than one IP for each IP family")
		}
	}
	if isHeadless(s) {
		return
	}
	for i, ip := range ips[:min(len(ips), len(s.Spec.IPFamilies))] {
		family := s.Spec.IPFamilies[i]
		if (family == corev1.IPv4Protocol || family == corev1.IPv6Protocol) && familyOf(ip) != family {
			p.Item("clusterIPs", i).Invalid("", ip, fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%v]`", family, i))
		}
	}
}

func familyOf(ip string) corev1.IPFamily {
	if netutils.IsIPv6String(ip) {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// validateClusterIPsChange allows the second address and family to be added or removed, but not the first to change.
func validateClusterIPsChange(p *check.Part, new, old *corev1.Service) {
	if !NeedsClusterIP(new) || !NeedsClusterIP(old) {
		return
	}
	if !isHeadless(new) || !isHeadless(old) {
		validateIPsChange(p, new, old)
	}
	if !isHeadless(new) && !isHeadless(old) {
		validateFamiliesChange(p, new, old)
	}
}

const mayNotChange = "may not change once set"

func validateIPsChange(p *check.Part, new, old *corev1.Service) {
	ips, oldIPs := new.Spec.ClusterIPs, old.Spec.ClusterIPs
	if len(ips) == len(oldIPs) {
		for i := range ips {
			if ips[i] != oldIPs[i] {
				p.Item("clusterIPs", i).Invalid("", ips, mayNotChange)
			}
		}
		return
	}
	if len(ips) == 0 {
		p.Item("clusterIPs", 0).Invalid("", ips, "primary clusterIP can not be unset")
	} else if len(oldIPs) > 0 && ips[0] != oldIPs[0] {
		p.Item("clusterIPs", 0).Invalid("", ips, mayNotChange)
	}
	if len(oldIPs) > 1 && len(ips) == 1 && familyPolicy(new) != corev1.IPFamilyPolicySingleStack {
		p.Invalid("ipFamilyPolicy", new.Spec.IPFamilyPolicy, "must be set to 'SingleStack' when releasing the secondary clusterIP")
	}
}

func validateFamiliesChange(p *check.Part, new, old *corev1.Service) {
	families, oldFamilies := new.Spec.IPFamilies, old.Spec.IPFamilies
	if len(families) == len(oldFamilies) {
		for i := range families {
			if families[i] != oldFamilies[i] {
				p.Item("ipFamilies", 0).Invalid("", families, mayNotChange)
			}
		}
		return
	}
	if len(families) < len(oldFamilies) && len(new.Spec.ClusterIPs) == 0 {
		p.Item("ipFamilies", 0).Invalid("", families, "primary ipFamily can not be unset")
	}
	if len(families) > 0 && len(oldFamilies) > 0 && families[0] != oldFamilies[0] {
		p.Item("ipFamilies", 0).Invalid("", new.Spec.ClusterIPs, mayNotChange) // upstream shows the addresses here
	}
	if len(oldFamilies) > 1 && len(families) == 1 && familyPolicy(new) != corev1.IPFamilyPolicySingleStack {
		p.Invalid("ipFamilyPolicy", new.Spec.IPFamilyPolicy, "must be set to 'SingleStack' when releasing the secondary ipFamily")
	}
}
