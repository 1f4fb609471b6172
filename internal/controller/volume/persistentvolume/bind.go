package persistentvolume

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	storagehelpers "k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"skiff/internal/controller"
)

// preResizeCapacity is the annotation of a volume whose file system has not been resized yet, with the size that it still has.
const preResizeCapacity = "volume.alpha.kubernetes.io/pre-resize-capacity"

// bind decides the next step to bind a claim and a volume to each other: the volume's claimRef, then the claim's volumeName, then, when the volume is
// Bound, the claim's status. Of several writers the one that sets volumeName wins, and what others have bound is taken back.
func (b *binder) bind(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) controller.Decision {
	bound, changed, err := storagehelpers.GetBindVolumeToClaim(volume, claim)
	if err != nil {
		return controller.Decision{Err: err}
	}
	if changed {
		return controller.Decision{Actions: []controller.Action{controller.Update(bound)}, Then: func(err error) controller.Decision {
			if err != nil {
				b.reserved.release(volume.Name, claim.UID)
			}
			return controller.Decision{Err: err}
		}}
	}
	if bound := boundTo(claim, volume); bound != nil {
		return do(controller.Update(bound))
	}
	if volume.Status.Phase != corev1.VolumeBound {
		return controller.Nothing // the change woke the volume, and its status wakes the claim
	}
	changedClaim, err := withVolume(claim, volume)
	if err != nil || changedClaim == nil {
		return controller.Decision{Err: err}
	}
	return do(controller.UpdateStatus(changedClaim))
}

// inPhase returns a volume in a phase.
func inPhase(volume *corev1.PersistentVolume, phase corev1.PersistentVolumePhase) *corev1.PersistentVolume {
	changed := volume.DeepCopy()
	changed.Status.Phase, changed.Status.Message = phase, ""
	return changed
}

// boundTo returns a claim that is bound to a volume, or nil if it is already.
func boundTo(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	completed := metav1.HasAnnotation(claim.ObjectMeta, storagehelpers.AnnBindCompleted)
	if completed && claim.Spec.VolumeName == volume.Name {
		return nil
	}
	changed := claim.DeepCopy()
	if !completed {
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, storagehelpers.AnnBindCompleted, "yes")
	}
	if claim.Spec.VolumeName != volume.Name {
		changed.Spec.VolumeName = volume.Name
		if !metav1.HasAnnotation(claim.ObjectMeta, storagehelpers.AnnBoundByController) {
			metav1.SetMetaDataAnnotation(&changed.ObjectMeta, storagehelpers.AnnBoundByController, "yes")
		}
	}
	return changed
}

// withVolume returns a claim whose status is that of its volume, or nil if it is already. The size and the VolumeAttributesClass are set only when the
// claim becomes bound: later they are a resizer's.
func withVolume(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) (*corev1.PersistentVolumeClaim, error) {
	changed := claim.DeepCopy()
	s := &changed.Status
	s.Phase = corev1.ClaimBound
	if !slices.Equal(s.AccessModes, volume.Spec.AccessModes) {
		s.AccessModes = slices.Clone(volume.Spec.AccessModes)
	}
	if claim.Status.Phase != corev1.ClaimBound {
		size, ok := volume.Spec.Capacity[corev1.ResourceStorage]
		if !ok {
			return nil, fmt.Errorf("PersistentVolume %q is without a storage capacity", volume.Name)
		}
		if before, resizing := volume.Annotations[preResizeCapacity]; resizing {
			if old, err := resource.ParseQuantity(before); err == nil {
				size = old
			}
			if s.Capacity == nil {
				s.Capacity = corev1.ResourceList{}
			}
			s.Capacity[corev1.ResourceStorage] = size
		} else if known, ok := s.Capacity[corev1.ResourceStorage]; !ok || known.Cmp(size) != 0 {
			s.Capacity = volume.DeepCopy().Spec.Capacity
		}
	}
	if claim.Status.Phase == corev1.ClaimPending && !ptr.Equal(s.CurrentVolumeAttributesClassName, volume.Spec.VolumeAttributesClassName) {
		s.CurrentVolumeAttributesClassName = volume.Spec.VolumeAttributesClassName
	}
	if equality.Semantic.DeepEqual(&claim.Status, s) {
		return nil, nil
	}
	return changed, nil
}
