package quota

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

var volumeClaims = corev1.Resource("persistentvolumeclaims")

const (
	volumeClaimCount corev1.ResourceName = "count/persistentvolumeclaims"
	// byClass separates a storage class from what is limited of it.
	byClass = ".storageclass.storage.k8s.io/"
)

type volumeClaimEvaluator struct{ plain }

func (volumeClaimEvaluator) Counts(name corev1.ResourceName) bool {
	switch name {
	case volumeClaimCount, corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage:
		return true
	default:
		return strings.HasSuffix(string(name), byClass+string(corev1.ResourcePersistentVolumeClaims)) ||
			strings.HasSuffix(string(name), byClass+string(corev1.ResourceRequestsStorage))
	}
}

func (volumeClaimEvaluator) Usage(obj Object) corev1.ResourceList {
	c, ok := obj.(*corev1.PersistentVolumeClaim)
	if !ok {
		return nil
	}
	used := corev1.ResourceList{volumeClaimCount: one(), corev1.ResourcePersistentVolumeClaims: one()}
	class := storageClass(c)
	if class != "" {
		used[corev1.ResourceName(class+byClass)+corev1.ResourcePersistentVolumeClaims] = one()
	}
	if storage, ok := storageOf(c); ok {
		used[corev1.ResourceRequestsStorage] = storage
		if class != "" {
			used[corev1.ResourceName(class+byClass)+corev1.ResourceRequestsStorage] = storage
		}
	}
	return used
}

func storageClass(c *corev1.PersistentVolumeClaim) string {
	if class, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	if c.Spec.StorageClassName != nil {
		return *c.Spec.StorageClassName
	}
	return ""
}

// storageOf returns what a claim requests or, if that is more, what is allocated: a claim whose request is reduced keeps its allocation.
// Quotas count whole bytes.
func storageOf(c *corev1.PersistentVolumeClaim) (resource.Quantity, bool) {
	storage, ok := c.Spec.Resources.Requests[corev1.ResourceStorage]
	if !ok {
		return storage, false
	}
	storage = storage.DeepCopy()
	storage.RoundUp(0)
	if allocated, ok := c.Status.AllocatedResources[corev1.ResourceStorage]; ok && allocated.Cmp(storage) > 0 {
		storage = allocated.DeepCopy()
		storage.RoundUp(0)
	}
	return storage, true
}

func (volumeClaimEvaluator) Charges(w Write) bool {
	return w.Subresource == "" || w.Subresource == "status" && !w.Create
}

// Frees reports whether the allocation or the volume attributes class of a claim changed.
func (volumeClaimEvaluator) Frees(new, old Object) bool {
	n, ok := new.(*corev1.PersistentVolumeClaim)
	o, also := old.(*corev1.PersistentVolumeClaim)
	if !ok || !also {
		return false
	}
	a, b := n.Status.AllocatedResources[corev1.ResourceStorage], o.Status.AllocatedResources[corev1.ResourceStorage]
	return a.Cmp(b) != 0 || !slices.Equal(attributesClasses(n), attributesClasses(o))
}

func (volumeClaimEvaluator) InScope(s corev1.ScopedResourceSelectorRequirement, obj Object) (bool, error) {
	c, ok := obj.(*corev1.PersistentVolumeClaim)
	if !ok || s.ScopeName != corev1.ResourceQuotaScopeVolumeAttributesClass {
		return false, nil
	}
	classes := attributesClasses(c)
	if s.Operator == corev1.ScopeSelectorOpExists {
		return len(classes) > 0, nil
	}
	return selects(s, classes...)
}

// attributesClasses returns the desired, current and target volume attributes classes of a claim, sorted.
func attributesClasses(c *corev1.PersistentVolumeClaim) []string {
	var names []string
	add := func(name *string) {
		if name != nil && *name != "" {
			names = append(names, *name)
		}
	}
	add(c.Spec.VolumeAttributesClassName)
	add(c.Status.CurrentVolumeAttributesClassName)
	if c.Status.ModifyVolumeStatus != nil {
		add(&c.Status.ModifyVolumeStatus.TargetVolumeAttributesClassName)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
