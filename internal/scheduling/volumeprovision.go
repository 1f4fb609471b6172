package scheduling

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/storage/volume"
)

// noProvisioner is the provisioner of classes whose volumes are created by hand.
const noProvisioner = "kubernetes.io/no-provisioner"

// provision returns the capacity that a volume for the claim can be provisioned from on the node, nil if that is not tracked, or the reason why it cannot.
func (c *volumeClaims) provision(claim *corev1.PersistentVolumeClaim, n *corev1.Node) (*storagev1.CSIStorageCapacity, string, error) {
	name := volume.GetPersistentVolumeClaimClass(claim)
	if name == "" {
		return nil, "", fmt.Errorf("no class for claim %q", claim.Namespace+"/"+claim.Name)
	}
	class := c.storage.Class(name)
	if class == nil {
		return nil, "", fmt.Errorf("failed to find storage class %q", name)
	}
	if class.Provisioner == "" || class.Provisioner == noProvisioner || !allowsTopology(class.AllowedTopologies, n.Labels) {
		return nil, reasonNoVolume, nil
	}
	size, ok := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if !ok || !tracksCapacity(c.storage.CSIDriver(class.Provisioner)) {
		return nil, "", nil
	}
	for _, capacity := range c.storage.Capacities() {
		if limit := largestVolume(capacity); capacity.StorageClassName == name && limit != nil && limit.Value() >= size.Value() && reaches(n, capacity) {
			return capacity, "", nil
		}
	}
	return nil, reasonNoSpace, nil
}

// allowsTopology reports whether a node with these labels matches one of the terms. No terms match every node, a term without requirements none.
func allowsTopology(terms []corev1.TopologySelectorTerm, node labels.Set) bool {
	if len(terms) == 0 {
		return true
	}
	return slices.ContainsFunc(terms, func(t corev1.TopologySelectorTerm) bool {
		for _, r := range t.MatchLabelExpressions {
			if value, ok := node[r.Key]; !ok || !slices.Contains(r.Values, value) {
				return false
			}
		}
		return len(t.MatchLabelExpressions) > 0
	})
}

// tracksCapacity reports whether the driver has CSIStorageCapacities of where it can provision volumes.
func tracksCapacity(driver *storagev1.CSIDriver) bool {
	return driver != nil && driver.Spec.StorageCapacity != nil && *driver.Spec.StorageCapacity
}

// largestVolume returns the size of the largest volume that can be provisioned; nil if that is unknown.
func largestVolume(c *storagev1.CSIStorageCapacity) *resource.Quantity {
	if c.MaximumVolumeSize != nil {
		return c.MaximumVolumeSize
	}
	return c.Capacity
}

// reaches reports whether the node can use volumes of that capacity.
func reaches(n *corev1.Node, c *storagev1.CSIStorageCapacity) bool {
	if c.NodeTopology == nil {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(c.NodeTopology)
	return err == nil && selector.Matches(labels.Set(n.Labels))
}
