package persistentvolume

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	storagehelpers "k8s.io/component-helpers/storage/volume"

	"skiff/internal/controller"
	"skiff/internal/controller/volume"
)

// reclaim decides about a volume whose claim is gone, or is bound to another volume: it becomes Released, and then what its reclaim policy says.
func (b *binder) reclaim(volume *corev1.PersistentVolume) controller.Decision {
	if !isReleased(volume) {
		return do(controller.UpdateStatus(inPhase(volume, corev1.VolumeReleased)))
	}
	if volume.Status.Phase == corev1.VolumeFailed || volume.Annotations[storagehelpers.AnnMigratedTo] != "" {
		return controller.Nothing
	}
	switch volume.Spec.PersistentVolumeReclaimPolicy {
	case corev1.PersistentVolumeReclaimRetain:
		return controller.Nothing
	case corev1.PersistentVolumeReclaimRecycle:
		if pods := b.users(volume.Spec.ClaimRef); len(pods) > 0 {
			return controller.Decision{RequeueAfter: resyncPeriod, Actions: []controller.Action{
				controller.Event(volume, corev1.EventTypeNormal, "VolumeFailedRecycle", "Volume is used by pods: %s", strings.Join(pods, ","))}}
		}
		return failed(volume, "VolumeFailedRecycle", "No recycler plugin found for the volume!")
	case corev1.PersistentVolumeReclaimDelete:
		if why := undeletable(volume); why != "" {
			return failed(volume, "VolumeFailedDelete", why)
		}
		return controller.Nothing // its provisioner deletes it
	default:
		return failed(volume, "VolumeUnknownReclaimPolicy", "Volume has unrecognized PersistentVolumeReclaimPolicy")
	}
}

func failed(volume *corev1.PersistentVolume, reason, message string) controller.Decision {
	changed := inPhase(volume, corev1.VolumeFailed)
	changed.Status.Message = message
	return do(controller.UpdateStatus(changed), controller.Event(volume, corev1.EventTypeWarning, reason, "%s", message))
}

// users returns the pods that use a claim that is gone. A claim of the same name that is there is another one, whose pods do not matter.
func (b *binder) users(ref *corev1.ObjectReference) (names []string) {
	if _, err := b.claims.PersistentVolumeClaims(ref.Namespace).Get(ref.Name); err == nil {
		return nil
	}
	for _, pod := range b.podsOf(refKey(ref)) {
		if !volume.HasEnded(pod) {
			names = append(names, controller.KeyOf(pod).String())
		}
	}
	slices.Sort(names)
	return names
}

// undeletable says why nobody deletes a volume; "" if a provisioner outside does.
func undeletable(volume *corev1.PersistentVolume) string {
	if by := volume.Annotations[storagehelpers.AnnDynamicallyProvisioned]; by != "" {
		if strings.HasPrefix(by, inTree) {
			return "no volume plugin matched name: " + by
		}
		return ""
	}
	if metav1.HasAnnotation(volume.ObjectMeta, storagehelpers.AnnMigratedTo) || volume.Spec.CSI != nil {
		return ""
	}
	why := "no volume plugin matched"
	if path := volume.Spec.HostPath; path != nil && !strings.HasPrefix(path.Path, "/tmp/") {
		return "host_path deleter only supports /tmp/.+ but received provided " + path.Path
	} else if path != nil || volume.Spec.NFS != nil {
		why = "no deletable volume plugin matched"
	}
	return fmt.Sprintf("error getting deleter volume plugin for volume %q: %s", volume.Name, why)
}
