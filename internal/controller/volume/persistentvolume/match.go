package persistentvolume

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	storagehelpers "k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"skiff/internal/controller"
)

// mismatch says why a volume does not have what a claim asks for, as an Event about a claim that asks for this volume says it; "" if it has.
func mismatch(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) string {
	size, wanted := volume.Spec.Capacity[corev1.ResourceStorage], claim.Spec.Resources.Requests[corev1.ResourceStorage]
	switch {
	case volume.DeletionTimestamp != nil:
		return fmt.Sprintf("the volume is marked for deletion %q", volume.Name)
	case size.Cmp(wanted) < 0:
		return "requested PV is too small"
	case storagehelpers.GetPersistentVolumeClass(volume) != storagehelpers.GetPersistentVolumeClaimClass(claim):
		return "storageClassName does not match"
	case ptr.Deref(claim.Spec.VolumeAttributesClassName, "") != ptr.Deref(volume.Spec.VolumeAttributesClassName, ""):
		return "volumeAttributesClassName does not match"
	case storagehelpers.CheckVolumeModeMismatches(&claim.Spec, &volume.Spec):
		return "incompatible volumeMode"
	case !storagehelpers.CheckAccessModes(claim, volume):
		return "incompatible accessMode"
	}
	return ""
}

// mayTake reports whether a claim may be bound to a volume that is available.
func mayTake(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) bool {
	if mismatch(claim, volume) != "" {
		return false
	}
	selector, err := selectorOf(claim)
	return err == nil && selector.Matches(labels.Set(volume.Labels))
}

func selectorOf(claim *corev1.PersistentVolumeClaim) (labels.Selector, error) {
	if claim.Spec.Selector == nil {
		return labels.Everything(), nil
	}
	selector, err := metav1.LabelSelectorAsSelector(claim.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("error creating internal label selector for claim: %v: %w", controller.KeyOf(claim), err)
	}
	return selector, nil
}

// find returns the volume that a claim is to be bound to, and reserves it: one that is bound to the claim already, or was reserved for it by its creator,
// otherwise the best one that is available. Those are not looked for if delayed is set: then the scheduler chooses. It returns nil if there is none.
func (b *binder) find(claim *corev1.PersistentVolumeClaim, delayed bool) (*corev1.PersistentVolume, error) {
	selector, err := selectorOf(claim)
	if err != nil {
		return nil, err
	}
	if bound := b.boundTo(claim); bound != nil || delayed {
		return bound, nil
	}
	class := storagehelpers.GetPersistentVolumeClaimClass(claim)
	b.waiting.add(controller.KeyOf(claim), class)
	available := get[*corev1.PersistentVolume](b.volumeIndex, availableByClass, class)
	chosen := b.reserved.choose(claim.UID, func(free func(*corev1.PersistentVolume) bool) (best *corev1.PersistentVolume) {
		for _, v := range available {
			if (best == nil || better(v, best)) && free(v) && mismatch(claim, v) == "" && selector.Matches(labels.Set(v.Labels)) {
				best = v
			}
		}
		return best
	})
	if chosen != nil {
		b.waiting.remove(controller.KeyOf(claim))
	}
	return chosen, nil
}

// boundTo returns the best volume whose claimRef is a claim, or nil. Its class and the claim's selector do not matter: whoever bound it has decided.
func (b *binder) boundTo(claim *corev1.PersistentVolumeClaim) (best *corev1.PersistentVolume) {
	for _, v := range get[*corev1.PersistentVolume](b.volumeIndex, volumesByClaim, controller.KeyOf(claim).String()) {
		size, wanted := v.Spec.Capacity[corev1.ResourceStorage], claim.Spec.Resources.Requests[corev1.ResourceStorage]
		if !storagehelpers.IsVolumeBoundToClaim(v, claim) || v.DeletionTimestamp != nil || size.Cmp(wanted) < 0 ||
			ptr.Deref(claim.Spec.VolumeAttributesClassName, "") != ptr.Deref(v.Spec.VolumeAttributesClassName, "") ||
			storagehelpers.CheckVolumeModeMismatches(&claim.Spec, &v.Spec) || !storagehelpers.CheckAccessModes(claim, v) {
			continue
		}
		if best == nil || v.Spec.ClaimRef.UID > best.Spec.ClaimRef.UID || v.Spec.ClaimRef.UID == best.Spec.ClaimRef.UID && better(v, best) {
			best = v
		}
	}
	return best
}

// better reports whether a is to be taken before b: it has fewer access modes, or is smaller.
func better(a, b *corev1.PersistentVolume) bool {
	sizeA, sizeB := a.Spec.Capacity[corev1.ResourceStorage], b.Spec.Capacity[corev1.ResourceStorage]
	return cmp.Or(cmp.Compare(len(a.Spec.AccessModes), len(b.Spec.AccessModes)), sizeA.Cmp(sizeB), cmp.Compare(a.Name, b.Name)) < 0
}
