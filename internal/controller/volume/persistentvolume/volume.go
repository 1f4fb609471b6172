package persistentvolume

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	storagehelpers "k8s.io/component-helpers/storage/volume"

	"skiff/internal/client"
	"skiff/internal/controller"
	"skiff/internal/controller/volume"
)

// decideVolume decides what to do about a volume. Binding it is decided with its claim.
func (b *binder) decideVolume(volume *corev1.PersistentVolume) controller.Decision {
	if migrated := withMigratedVolume(volume); migrated != nil {
		return do(controller.Update(migrated))
	}
	ref := volume.Spec.ClaimRef
	if ref == nil || ref.UID == "" {
		return b.phase(volume, corev1.VolumeAvailable)
	}
	claim, err := b.claims.PersistentVolumeClaims(ref.Namespace).Get(ref.Name)
	switch {
	case err != nil || claim.UID != ref.UID:
		return b.release(volume)
	case claim.Spec.VolumeName == volume.Name:
		return b.phase(volume, corev1.VolumeBound)
	case claim.Spec.VolumeName != "":
		return b.unbind(volume)
	case storagehelpers.CheckVolumeModeMismatches(&claim.Spec, &volume.Spec):
		return do(
			controller.Event(volume, corev1.EventTypeWarning, "VolumeMismatch", "Cannot bind PersistentVolume to requested PersistentVolumeClaim %q due to incompatible volumeMode.", claim.Name),
			controller.Event(claim, corev1.EventTypeWarning, "VolumeMismatch", "Cannot bind PersistentVolume %q to requested PersistentVolumeClaim due to incompatible volumeMode.", volume.Name))
	default:
		return controller.Nothing // the change woke the claim, which is bound next
	}
}

// inTreeFinalizer is what upstream's provisioners in the process of the loop protect a volume with.
const inTreeFinalizer = storagehelpers.PVDeletionInTreeProtectionFinalizer

// withMigratedVolume returns a volume that says which CSI driver does the work of its provisioner and lets that one delete it, or nil if it is right.
func withMigratedVolume(v *corev1.PersistentVolume) *corev1.PersistentVolume {
	annotations := withMigration(v.Annotations, storagehelpers.AnnDynamicallyProvisioned)
	held := slices.Contains(v.Finalizers, inTreeFinalizer) && volume.MigratedTo[v.Annotations[storagehelpers.AnnDynamicallyProvisioned]] != ""
	if annotations == nil && !held {
		return nil
	}
	changed := v.DeepCopy()
	if annotations != nil {
		changed.Annotations = annotations
	}
	if held {
		changed.Finalizers = slices.DeleteFunc(changed.Finalizers, func(f string) bool { return f == inTreeFinalizer })
	}
	return changed
}

func (b *binder) phase(volume *corev1.PersistentVolume, phase corev1.PersistentVolumePhase) controller.Decision {
	if volume.Status.Phase == phase {
		return controller.Nothing
	}
	return do(controller.UpdateStatus(inPhase(volume, phase)))
}

// unbind decides about a volume whose claim is bound to another one.
func (b *binder) unbind(volume *corev1.PersistentVolume) controller.Decision {
	if metav1.HasAnnotation(volume.ObjectMeta, storagehelpers.AnnDynamicallyProvisioned) && volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
		return b.reclaim(volume) // it was made for the claim, which does not need it
	}
	changed := volume.DeepCopy()
	if metav1.HasAnnotation(volume.ObjectMeta, storagehelpers.AnnBoundByController) {
		changed.Spec.ClaimRef = nil
		delete(changed.Annotations, storagehelpers.AnnBoundByController)
	} else {
		changed.Spec.ClaimRef.UID = "" // its creator reserved it for the claim
	}
	return do(controller.Update(changed))
}

// errClaimed says that a volume's claim is there after all: the informer of claims has not observed it yet.
var errClaimed = errors.New("the claim is there")

// release decides about a volume whose claim the informer does not have. The claim may be newer than what has been observed, so the API is asked before
// the volume is called Released.
func (b *binder) release(volume *corev1.PersistentVolume) controller.Decision {
	if isReleased(volume) {
		return b.reclaim(volume)
	}
	ref := volume.Spec.ClaimRef
	check := controller.Call("look whether claim "+refKey(ref).String()+" is gone", func(ctx context.Context, c *client.Client) error {
		claim, err := c.Kubernetes().CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil && claim.UID == ref.UID:
			return errClaimed
		}
		return err
	})
	return controller.Decision{Actions: []controller.Action{check}, Then: func(err error) controller.Decision {
		switch {
		case errors.Is(err, errClaimed):
			return controller.Decision{RequeueAfter: resyncPeriod} // the claim wakes it when it is observed
		case err != nil:
			return controller.Decision{Err: err}
		}
		return b.reclaim(volume)
	}}
}

func isReleased(volume *corev1.PersistentVolume) bool {
	return volume.Status.Phase == corev1.VolumeReleased || volume.Status.Phase == corev1.VolumeFailed
}
