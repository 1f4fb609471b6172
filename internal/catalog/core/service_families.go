package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"skiff/internal/catalog/check"
)

// initIPFamilies sets ipFamilyPolicy and ipFamilies from the client's values, those of the old service and the families of the
// cluster.
func initIPFamilies(new, old *corev1.Service, cluster []corev1.IPFamily) field.ErrorList {
	if !NeedsClusterIP(new) || keepsPreferredStack(new, old) {
		return nil
	}
	spec := &new.Spec
	selectorless := spec.ClusterIP == corev1.ClusterIPNone && len(spec.Selector) == 0
	if spec.IPFamilyPolicy == nil {
		spec.IPFamilyPolicy = defaultFamilyPolicy(old, selectorless)
	}
	p := check.At(field.NewPath("spec"))
	validateClusterIPs(p, new, old)
	if len(p.Errors()) > 0 {
		return p.Errors()
	}
	if old != nil {
		releaseSecondary(p, new, old)
	}
	checkSingleStack(p, new)
	inferFamilies(p, spec, cluster)
	if len(p.Errors()) > 0 {
		return p.Errors()
	}
	if !selectorless { // a headless service without a selector may have any families, on any cluster
		if checkOffered(p, spec, cluster); len(p.Errors()) > 0 {
			return p.Errors()
		}
	}
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{cluster[0]}
	}
	if len(spec.IPFamilies) == 1 && familyPolicy(new) != corev1.IPFamilyPolicySingleStack && (selectorless || len(cluster) == 2) {
		spec.IPFamilies = append(spec.IPFamilies, otherFamily(spec.IPFamilies[0]))
	}
	return nil
}

// keepsPreferredStack reports whether an update does not change the addresses of a PreferDualStack service. They are kept
// then, even if the cluster became dual-stack or single-stack in the meantime.
func keepsPreferredStack(new, old *corev1.Service) bool {
	return old != nil && new.Spec.Type == old.Spec.Type &&
		(isType(new, corev1.ServiceTypeClusterIP) || hasNodePorts(new)) &&
		familyPolicy(new) == corev1.IPFamilyPolicyPreferDualStack &&
		ptr.Deref(old.Spec.IPFamilyPolicy, corev1.IPFamilyPolicyPreferDualStack) == corev1.IPFamilyPolicyPreferDualStack &&
		slices.Equal(new.Spec.ClusterIPs, old.Spec.ClusterIPs) && slices.Equal(new.Spec.IPFamilies, old.Spec.IPFamilies)
}

func defaultFamilyPolicy(old *corev1.Service, selectorless bool) *corev1.IPFamilyPolicy {
	switch {
	case old != nil && old.Spec.IPFamilyPolicy != nil:
		return ptr.To(*old.Spec.IPFamilyPolicy)
	case selectorless:
		return ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	}
	return ptr.To(corev1.IPFamilyPolicySingleStack)
}

// releaseSecondary removes the second address and family if the policy becomes SingleStack, which is the only way to request
// that.
func releaseSecondary(p *check.Part, new, old *corev1.Service) {
	n, o := &new.Spec, &old.Spec
	if familyPolicy(new) == corev1.IPFamilyPolicySingleStack {
		if len(n.ClusterIPs) > 1 && slices.Equal(n.ClusterIPs, o.ClusterIPs) {
			n.ClusterIPs = slices.Clone(n.ClusterIPs[:1])
		}
		if len(n.IPFamilies) > 1 && slices.Equal(n.IPFamilies, o.IPFamilies) {
			n.IPFamilies = slices.Clone(n.IPFamilies[:1])
		}
		return
	}
	if len(n.ClusterIPs) > 0 && len(n.ClusterIPs) < len(o.ClusterIPs) {
		p.Invalid("ipFamilyPolicy", n.IPFamilyPolicy, "must be 'SingleStack' to release the secondary cluster IP")
	}
	if len(n.IPFamilies) > 0 && len(n.IPFamilies) < len(o.IPFamilies) {
		p.Invalid("ipFamilyPolicy", n.IPFamilyPolicy, "must be 'SingleStack' to release the secondary IP family")
	}
}

func checkSingleStack(p *check.Part, s *corev1.Service) {
	if familyPolicy(s) != corev1.IPFamilyPolicySingleStack {
		return
	}
	const msg = "must be 'RequireDualStack' or 'PreferDualStack' when multiple "
	if len(s.Spec.ClusterIPs) == 2 {
		p.Invalid("ipFamilyPolicy", s.Spec.IPFamilyPolicy, msg+"cluster IPs are specified")
	}
	if len(s.Spec.IPFamilies) == 2 {
		p.Invalid("ipFamilyPolicy", s.Spec.IPFamilyPolicy, msg+"IP families are specified")
	}
}

// inferFamilies adds the families of addresses that the client set without their family.
func inferFamilies(p *check.Part, spec *corev1.ServiceSpec, cluster []corev1.IPFamily) {
	for i, ip := range spec.ClusterIPs {
		switch family := familyOf(ip); {
		case ip == corev1.ClusterIPNone:
			return
		case i < len(spec.IPFamilies):
		case !slices.Contains(cluster, family):
			p.Item("clusterIPs", i).Invalid("", spec.ClusterIPs, string(family)+" is not configured on this cluster")
		default:
			spec.IPFamilies = append(spec.IPFamilies, family)
		}
	}
}

// checkOffered requires the cluster to have the families of the service.
func checkOffered(p *check.Part, spec *corev1.ServiceSpec, cluster []corev1.IPFamily) {
	if *spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack && len(cluster) < 2 {
		p.Invalid("ipFamilyPolicy", spec.IPFamilyPolicy, "this cluster is not configured for dual-stack services")
	}
	for i, family := range spec.IPFamilies {
		if !slices.Contains(cluster, family) {
			p.Item("ipFamilies", i).Invalid("", family, "not configured on this cluster")
		}
	}
}

func otherFamily(family corev1.IPFamily) corev1.IPFamily {
	if family == corev1.IPv4Protocol {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}
