package localvolume

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	volumehelpers "k8s.io/component-helpers/storage/volume"

	"skiff/internal/controller"
	"skiff/internal/localvolume"
)

// nodeBackTime is how long it takes to look again whether a node is back that a volume is to be deleted on.
const nodeBackTime = 5 * time.Minute

// release deletes the volume of a PersistentVolume whose claim is gone, if that is its reclaim policy, and then the PersistentVolume. Until the volume is deleted a finalizer
// keeps the PersistentVolume, which is all that is known of it.
func (l *loop) release(pv *corev1.PersistentVolume) controller.Decision {
	if pv.Annotations[volumehelpers.AnnDynamicallyProvisioned] != localvolume.Driver {
		return controller.Nothing // somebody made it by hand, and deletes what it is about by hand
	}
	protected := slices.Contains(pv.Finalizers, volumehelpers.PVDeletionProtectionFinalizer)
	if pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		if protected {
			return letGo(pv)
		}
		return controller.Nothing
	}
	if !protected && pv.DeletionTimestamp != nil {
		return controller.Nothing // the volume has been deleted
	}
	if !protected {
		pv = pv.DeepCopy()
		pv.Finalizers = append(pv.Finalizers, volumehelpers.PVDeletionProtectionFinalizer)
		return controller.Decision{Actions: []controller.Action{controller.Update(pv)}}
	}
	if pv.Status.Phase != corev1.VolumeReleased {
		return controller.Nothing
	}
	node := pv.Spec.CSI.VolumeAttributes[localvolume.NodeAttribute]
	if _, err := l.nodes.Get(node); apierrors.IsNotFound(err) {
		d := deleteFailed(pv, fmt.Errorf("node %q, which has it, does not exist; if it is gone for good, remove the finalizer %s", node, volumehelpers.PVDeletionProtectionFinalizer))
		d.RequeueAfter = nodeBackTime
		return d
	}
	return controller.Decision{
		Actions: []controller.Action{l.call("delete volume "+pv.Spec.CSI.VolumeHandle, node, func(ctx context.Context, volumes localvolume.Volumes) error {
			_, err := volumes.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: pv.Spec.CSI.VolumeHandle})
			return err
		})},
		Then: func(err error) controller.Decision {
			switch {
			case err != nil:
				d := deleteFailed(pv, err)
				d.Err = err
				return d
			case pv.DeletionTimestamp == nil:
				return controller.Decision{Actions: []controller.Action{controller.Delete(pv, metav1.DeleteOptions{})}} // it keeps its finalizer until it is seen here again
			}
			return letGo(pv)
		},
	}
}

func deleteFailed(pv *corev1.PersistentVolume, err error) controller.Decision {
	return controller.Decision{Actions: []controller.Action{controller.Event(pv, corev1.EventTypeWarning, "VolumeFailedDelete", "%v", err)}}
}

// letGo removes the finalizer of a PersistentVolume. One that is not there any more had none.
func letGo(pv *corev1.PersistentVolume) controller.Decision {
	pv = pv.DeepCopy()
	pv.Finalizers = slices.DeleteFunc(pv.Finalizers, func(f string) bool { return f == volumehelpers.PVDeletionProtectionFinalizer })
	return controller.Decision{Actions: []controller.Action{controller.Update(pv)}, Then: func(err error) controller.Decision {
		if apierrors.IsNotFound(err) {
			return controller.Nothing
		}
		return controller.Decision{Err: err}
	}}
}
