package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// PrepareAllocation prepares a service that is created (old is nil) or updated for the allocation of cluster IPs and
// node ports: it makes the linked address fields consistent and sets the families. The server calls it before it
// allocates, which in turn comes before PrepareCreate or PrepareUpdate and validation. families are those of the cluster, the primary first.
// An old service must have been passed to DefaultOnRead. Errors make the request invalid.
func PrepareAllocation(new, old *corev1.Service, families []corev1.IPFamily) field.ErrorList {
	if old != nil {
		PatchAllocatedValues(new, old)
	}
	NormalizeClusterIPs(new, old)
	return initIPFamilies(new, old, families)
}

// DefaultOnRead sets the missing fields of a stored service, which may be older than some of its fields. It also applies to
// the response of a write.
func DefaultOnRead(s *corev1.Service, primary corev1.IPFamily) {
	NormalizeClusterIPs(s, nil)
	DefaultIPFamilies(s, primary)
	if !NeedsClusterIP(s) {
		s.Spec.InternalTrafficPolicy = nil // was once stored by mistake
	}
}

// DefaultIPFamilies sets the families of a stored service that has none.
func DefaultIPFamilies(s *corev1.Service, primary corev1.IPFamily) {
	if !NeedsClusterIP(s) || len(s.Spec.IPFamilies) > 0 {
		return
	}
	switch {
	case s.Spec.ClusterIP == corev1.ClusterIPNone && len(s.Spec.Selector) == 0:
		// The author of its endpoints may use either family.
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

// NormalizeClusterIPs sets clusterIPs from the older clusterIP if the client evidently knows only that; old
// is nil on create. Validation refuses what stays inconsistent.
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

// PatchAllocatedValues copies allocated values of the old service that the client left out of the new one, so that
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

// patchNodePorts copies node ports of the old service to ports of the same name, except those that the client gave to another port.
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

// IPClaim is a request of a service for a cluster IP.
type IPClaim struct {
	Family corev1.IPFamily
	Index  int    // its index in clusterIPs
	IP     string // the address that the client requests; any if empty
}

// ClusterIPClaims returns which cluster IPs a service needs after PrepareAllocation, and which it releases
// once it is stored; old is nil on create. The caller sets the allocated addresses with SetClusterIP.
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

// SetClusterIP sets the address that was allocated for a claim.
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

// ReleasedClusterIPs returns the cluster IPs that a deleted service releases.
func ReleasedClusterIPs(s *corev1.Service) []string {
	if !NeedsClusterIP(s) || isHeadless(s) {
		return nil
	}
	return s.Spec.ClusterIPs
}
