package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// PrepareAllocation decides what a service that is created (old is nil) or updated needs from the pools of cluster IPs and
// node ports: it puts the linked address fields in order and fills in the families. The server calls it before it
// allocates, which in turn comes before the strategy and validation. families are those of the cluster, the primary first.
// An old service must have been through DefaultOnRead. Errors make the request invalid.
func PrepareAllocation(new, old *corev1.Service, families []corev1.IPFamily) field.ErrorList {
	if old != nil {
		PatchAllocatedValues(new, old)
	}
	NormalizeClusterIPs(new, old)
	return initIPFamilies(new, old, families)
}

// DefaultOnRead makes a stored service presentable: it may date from a time before some of its fields. Also what is
// returned to the client that wrote it goes through this.
func DefaultOnRead(s *corev1.Service, primary corev1.IPFamily) {
	NormalizeClusterIPs(s, nil)
	DefaultIPFamilies(s, primary)
	if !NeedsClusterIP(s) {
		s.Spec.InternalTrafficPolicy = nil // was once stored by mistake
	}
}

// DefaultIPFamilies derives the families of a stored service that does not say them.
func DefaultIPFamilies(s *corev1.Service, primary corev1.IPFamily) {
	if !NeedsClusterIP(s) || len(s.Spec.IPFamilies) > 0 {
		return
	}
	switch {
	case s.Spec.ClusterIP == corev1.ClusterIPNone && len(s.Spec.Selector) == 0:
		// Whoever writes its endpoints may use either family.
		s.Spec.IPFamilies = []corev1.IPFamily{primary, otherFamily(primary)}
	case s.Spec.ClusterIP == corev1.ClusterIPNone:
		s.Spec.IPFamilies = []corev1.IPFamily{primary}
	default:
		for _, ip := range s.Spec.ClusterIPs {
			s.Spec.IPFamilies = append(s.Spec.IPFamilies, familyOf(ip))
		}
	}
	switch len(s.Spec.IPFamilies) {
	case 1:
		s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
	case 2:
		s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	}
}

// NormalizeClusterIPs brings clusterIPs in line with the older clusterIP where the client evidently knows only that; old
// is nil on create. What remains contradictory is left for validation to refuse.
func NormalizeClusterIPs(new, old *corev1.Service) {
	ip, ips := new.Spec.ClusterIP, &new.Spec.ClusterIPs
	if old == nil {
		if ip != "" && len(*ips) == 0 {
			*ips = []string{ip}
		}
		return
	}
	oldIP, oldIPs := old.Spec.ClusterIP, old.Spec.ClusterIPs
	switch {
	case ip == oldIP:
		if len(*ips) == 0 {
			*ips = slices.Clone(oldIPs)
		}
	case !slices.Equal(*ips, oldIPs):
	case ip == "":
		*ips = nil
	default:
		*ips = []string{ip}
	}
}

// PatchAllocatedValues keeps what was allocated to the old service and the client left out of the new one, so that
// applying the same manifest twice succeeds.
func PatchAllocatedValues(new, old *corev1.Service) {
	if NeedsClusterIP(old) && NeedsClusterIP(new) {
		if new.Spec.ClusterIP == "" {
			new.Spec.ClusterIP = old.Spec.ClusterIP
		}
		if len(new.Spec.ClusterIPs) == 0 {
			new.Spec.ClusterIPs = slices.Clone(old.Spec.ClusterIPs)
		}
	}
	if NeedsNodePort(old) && NeedsNodePort(new) {
		patchNodePorts(new, old)
	}
	if NeedsHealthCheckNodePort(old) && NeedsHealthCheckNodePort(new) && new.Spec.HealthCheckNodePort == 0 {
		new.Spec.HealthCheckNodePort = old.Spec.HealthCheckNodePort
	}
}

// patchNodePorts recognizes ports by name. A node port that the client gave to another port is not given out again.
func patchNodePorts(new, old *corev1.Service) {
	had := make(map[string]int32, len(old.Spec.Ports))
	for _, p := range old.Spec.Ports {
		had[p.Name] = p.NodePort
	}
	asked := nodePorts(new)
	for i := range new.Spec.Ports {
		p := &new.Spec.Ports[i]
		if p.NodePort == 0 && !slices.Contains(asked, had[p.Name]) {
			p.NodePort = had[p.Name]
		}
	}
}

// IPClaim is a cluster IP that a service wants.
type IPClaim struct {
	Family corev1.IPFamily
	Index  int    // where it stands in clusterIPs
	IP     string // the one the client wants; any if empty
}

// ClusterIPClaims says which cluster IPs a service that went through PrepareAllocation needs, and which it gives back
// once it is stored; old is nil on create. SetClusterIP takes the answers.
func ClusterIPClaims(new, old *corev1.Service) (claims []IPClaim, release []string) {
	claim := func(from int) {
		for i, family := range new.Spec.IPFamilies[from:] {
			c := IPClaim{Family: family, Index: from + i}
			if c.Index < len(new.Spec.ClusterIPs) {
				c.IP = new.Spec.ClusterIPs[c.Index]
			}
			claims = append(claims, c)
		}
	}
	switch {
	case old == nil || !NeedsClusterIP(old):
		if NeedsClusterIP(new) && !isHeadless(new) {
			claim(0)
		}
	case isHeadless(old) || keepsPreferredStack(new, old):
	case !NeedsClusterIP(new):
		release = slices.Clone(old.Spec.ClusterIPs)
	case len(old.Spec.IPFamilies) == 1 && len(new.Spec.IPFamilies) == 2:
		claim(1)
	case len(old.Spec.IPFamilies) == 2 && len(new.Spec.IPFamilies) == 1:
		release = slices.Clone(old.Spec.ClusterIPs[1:])
	}
	return claims, release
}

// SetClusterIP gives the service the address that was found for a claim.
func SetClusterIP(s *corev1.Service, c IPClaim, ip string) {
	ips := slices.Clone(s.Spec.ClusterIPs)
	for len(ips) <= c.Index {
		ips = append(ips, "")
	}
	ips[c.Index] = ip
	s.Spec.ClusterIPs = ips
	if c.Index == 0 {
		s.Spec.ClusterIP = ip
	}
}

// ReleasedClusterIPs are the cluster IPs that a deleted service gives back.
func ReleasedClusterIPs(s *corev1.Service) []string {
	if !NeedsClusterIP(s) || isHeadless(s) {
		return nil
	}
	return s.Spec.ClusterIPs
}
