package noderestriction

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/diff"

	"skiff/internal/apiserver/admission"
)

// admitNode lets a node write its own Node, except for what decides which pods it gets. Unlike upstream, it also refuses changes of podCIDRs: the
// allocator sets them, and packets are routed by them.
func admitNode(name string, a *admission.Attributes) error {
	if a.Name != name {
		return a.Forbidden(fmt.Errorf("node %q is not allowed to modify node %q", name, a.Name))
	}
	if a.Operation == admission.Delete {
		return nil
	}
	node, ok := a.Object.(*corev1.Node)
	if !ok {
		return unexpected(a, a.Object)
	}
	if a.Operation == admission.Create {
		if node.Spec.ConfigSource != nil {
			return a.Forbidden(fmt.Errorf("node %q is not allowed to create pods with a non-nil configSource", name))
		}
		if labels := forbiddenLabels(node.Labels, nil); len(labels) > 0 {
			return a.Forbidden(fmt.Errorf("node %q is not allowed to set the following labels: %s", name, strings.Join(labels, ", ")))
		}
		if node.Spec.PodCIDR != "" || len(node.Spec.PodCIDRs) > 0 {
			return a.Forbidden(fmt.Errorf("node %q is not allowed to set its podCIDRs", name))
		}
		return nil
	}
	old, ok := a.Old.(*corev1.Node)
	if !ok {
		return unexpected(a, a.Old)
	}
	switch {
	case node.Spec.ConfigSource != nil && !equality.Semantic.DeepEqual(node.Spec.ConfigSource, old.Spec.ConfigSource):
		return a.Forbidden(fmt.Errorf("node %q is not allowed to update configSource to a new non-nil configSource", name))
	case !equality.Semantic.DeepEqual(node.Spec.Taints, old.Spec.Taints):
		return a.Forbidden(fmt.Errorf("node %q is not allowed to modify taints", name))
	case !equality.Semantic.DeepEqual(node.OwnerReferences, old.OwnerReferences):
		return a.Forbidden(fmt.Errorf("node %q is not allowed to modify ownerReferences", name))
	case node.Spec.PodCIDR != old.Spec.PodCIDR || !slices.Equal(node.Spec.PodCIDRs, old.Spec.PodCIDRs):
		return a.Forbidden(fmt.Errorf("node %q is not allowed to modify its podCIDRs", name))
	}
	if labels := forbiddenLabels(node.Labels, old.Labels); len(labels) > 0 {
		return a.Forbidden(fmt.Errorf("is not allowed to modify labels: %s", strings.Join(labels, ", ")))
	}
	return nil
}

// forbiddenLabels returns, sorted, the labels that differ and that a node may not set on itself.
func forbiddenLabels(labels, old map[string]string) []string {
	forbidden := map[string]bool{}
	differ := func(a, b map[string]string) {
		for key, value := range a {
			if other, ok := b[key]; (!ok || other != value) && !nodeMaySet(key) {
				forbidden[key] = true
			}
		}
	}
	differ(labels, old)
	differ(old, labels)
	return slices.Sorted(maps.Keys(forbidden))
}

// kubeletLabels are the labels of Kubernetes' domains that a kubelet sets on its node.
var kubeletLabels = []string{
	corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
	corev1.LabelInstanceType, corev1.LabelInstanceTypeStable, corev1.LabelOSStable, corev1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
}

// nodeMaySet reports whether a node may set the label on itself. In the domains of Kubernetes only kubeletLabels and two subdomains are allowed.
func nodeMaySet(label string) bool {
	domain, _, ok := strings.Cut(label, "/")
	if !ok {
		return true
	}
	in := func(suffix string) bool { return domain == suffix || strings.HasSuffix(domain, "."+suffix) }
	switch {
	case in(corev1.LabelNamespaceNodeRestriction):
		return false
	case in("kubernetes.io") || in("k8s.io"):
		return slices.Contains(kubeletLabels, label) || in(corev1.LabelNamespaceSuffixKubelet) || in(corev1.LabelNamespaceSuffixNode)
	default:
		return true
	}
}

// admitClaim lets a node report the size of volumes it has expanded.
func admitClaim(node string, a *admission.Attributes) error {
	if a.Subresource != "status" {
		return a.Forbidden(errors.New("may only update PVC status"))
	}
	if a.Operation != admission.Update {
		return a.Forbidden(fmt.Errorf("unexpected operation %q", a.Operation))
	}
	old, ok := a.Old.(*corev1.PersistentVolumeClaim)
	if !ok {
		return unexpected(a, a.Old)
	}
	claim, ok := a.Object.(*corev1.PersistentVolumeClaim)
	if !ok {
		return unexpected(a, a.Object)
	}
	if old, claim = withoutSize(old), withoutSize(claim); !equality.Semantic.DeepEqual(old, claim) {
		return a.Forbidden(fmt.Errorf("node %q is not allowed to update fields other than status.quantity and status.conditions: %v", node, diff.Diff(old, claim)))
	}
	return nil
}

// withoutSize returns the claim without everything that a node may change in it.
func withoutSize(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	rest := claim.DeepCopy()
	rest.ResourceVersion, rest.ManagedFields = "", nil
	rest.Status.Capacity, rest.Status.Conditions = nil, nil
	rest.Status.AllocatedResources, rest.Status.AllocatedResourceStatuses = nil, nil
	return rest
}

func admitLease(node string, a *admission.Attributes) error {
	if a.Namespace != corev1.NamespaceNodeLease {
		return a.Forbidden(fmt.Errorf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease))
	}
	name := a.Name
	if a.Operation == admission.Create {
		lease, ok := a.Object.(*coordinationv1.Lease)
		if !ok {
			return unexpected(a, a.Object)
		}
		name = lease.Name
	}
	if name != node {
		return a.Forbidden(errors.New("can only access node lease with the same name as the requesting node"))
	}
	return nil
}

func admitCSINode(node string, a *admission.Attributes) error {
	name := a.Name
	if a.Operation == admission.Create && a.Object != nil {
		name = a.Object.GetName()
	}
	if name != node {
		return a.Forbidden(errors.New("can only access CSINode with the same name as the requesting node"))
	}
	if a.Subresource == "status" {
		return a.Forbidden(errors.New("CSIVolumeHealth feature gate is disabled"))
	}
	return nil
}

// admitResourceSlice checks the node of created and deleted slices; for updates the node authorizer does.
func admitResourceSlice(node string, a *admission.Attributes) error {
	obj, verb := a.Object, "create"
	switch a.Operation {
	case admission.Create:
	case admission.Delete:
		obj, verb = a.Old, "delete"
	default:
		return nil
	}
	slice, ok := obj.(*resourcev1.ResourceSlice)
	if !ok {
		return unexpected(a, obj)
	}
	if slice.Spec.NodeName == nil || *slice.Spec.NodeName != node {
		return a.Forbidden(fmt.Errorf("can only %s ResourceSlice with the same NodeName as the requesting node", verb))
	}
	return nil
}
