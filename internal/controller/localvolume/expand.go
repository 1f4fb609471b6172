package localvolume

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/controller"
	"skiff/internal/localvolume"
)

const storage = corev1.ResourceStorage

// expand has the node expand the volume of a claim that asks for more than it has. The file system in it grows on the node, and the kubelet notes when it has.
func (l *loop) expand(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, now time.Time) controller.Decision {
	wanted, has, noted := claim.Spec.Resources.Requests[storage], pv.Spec.Capacity[storage], claim.Status.Capacity[storage]
	switch {
	case claim.DeletionTimestamp != nil:
		return controller.Nothing
	case has.Cmp(wanted) < 0:
		return l.expandVolume(claim, pv, wanted, now)
	case noted.Cmp(wanted) >= 0: // done
		return noteState(claim, expandedTo(claim, noted))
	case !isBlock(pv.Spec.VolumeMode):
		pending := inState(claim, wanted, corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimFileSystemResizePending, now,
			"Waiting for user to (re-)start a pod to finish file system resize of volume on node.")
		if claim.Status.AllocatedResourceStatuses[storage] == corev1.PersistentVolumeClaimNodeResizeInProgress {
			return controller.Nothing // the kubelet is about it
		}
		return noteState(claim, pending, controller.Event(claim, corev1.EventTypeNormal, "FileSystemResizeRequired", "Require file system resize of volume on node"))
	}
	return noteState(claim, expandedTo(claim, has), controller.Event(claim, corev1.EventTypeNormal, "VolumeResizeSuccessful", "Resize volume succeeded"))
}

// expandVolume has the node expand a volume.
func (l *loop) expandVolume(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, wanted resource.Quantity, now time.Time) controller.Decision {
	d := noteState(claim, inState(claim, wanted, corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimResizing, now, ""),
		controller.Event(claim, corev1.EventTypeNormal, "Resizing", "External resizer is resizing volume %s", pv.Name))
	if tried := claim.Status.AllocatedResources[storage]; claim.Status.AllocatedResourceStatuses[storage] == corev1.PersistentVolumeClaimControllerResizeInfeasible && tried.Equal(wanted) {
		d.Actions = nil // it is tried again, and noted when there is space
	}
	size := wanted
	node, request := pv.Spec.CSI.VolumeAttributes[localvolume.NodeAttribute], &csi.ControllerExpandVolumeRequest{VolumeId: pv.Spec.CSI.VolumeHandle, CapacityRange: &csi.CapacityRange{RequiredBytes: wanted.Value()}}
	d.Actions = append(d.Actions, l.call(fmt.Sprintf("expand volume %s to %s", request.VolumeId, wanted.String()), node, func(ctx context.Context, volumes localvolume.Volumes) error {
		response, err := volumes.ControllerExpandVolume(ctx, request)
		if n := response.GetCapacityBytes(); n > wanted.Value() {
			size = *resource.NewQuantity(n, resource.BinarySI)
		}
		return err
	}))
	d.Then = func(err error) controller.Decision {
		if err == nil { // the change of the PersistentVolume requeues the claim
			expanded := pv.DeepCopy()
			expanded.Spec.Capacity[storage] = size
			return controller.Decision{Actions: []controller.Action{controller.Update(expanded)}}
		}
		failed := []controller.Action{controller.Event(claim, corev1.EventTypeWarning, "VolumeResizeFailed", "resize volume %q by resizer %q failed: %v", pv.Name, localvolume.Driver, err)}
		if status.Code(err) == codes.ResourceExhausted || status.Code(err) == codes.OutOfRange {
			infeasible := inState(claim, wanted, corev1.PersistentVolumeClaimControllerResizeInfeasible, corev1.PersistentVolumeClaimResizing, now, "")
			infeasible.ResourceVersion = "" // this loop has just written it
			failed = append(failed, noteState(claim, infeasible).Actions...)
		}
		return controller.Decision{Actions: failed, Err: err}
	}
	return d
}

// noteState updates the status of a claim if it is not as wanted, followed by more actions.
func noteState(claim, wanted *corev1.PersistentVolumeClaim, then ...controller.Action) controller.Decision {
	if equality.Semantic.DeepEqual(claim.Status, wanted.Status) {
		return controller.Nothing
	}
	return controller.Decision{Actions: append([]controller.Action{controller.UpdateStatus(wanted)}, then...)}
}

// inState returns a copy of a claim whose expansion to a size has got so far.
func inState(claim *corev1.PersistentVolumeClaim, size resource.Quantity, state corev1.ClaimResourceStatus, condition corev1.PersistentVolumeClaimConditionType, now time.Time, message string) *corev1.PersistentVolumeClaim {
	claim = claim.DeepCopy()
	s := &claim.Status
	if s.AllocatedResources == nil {
		s.AllocatedResources = corev1.ResourceList{}
	}
	if s.AllocatedResourceStatuses == nil {
		s.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{}
	}
	s.AllocatedResources[storage], s.AllocatedResourceStatuses[storage] = size, state
	if slices.ContainsFunc(s.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == condition && c.Status == corev1.ConditionTrue
	}) {
		return claim
	}
	s.Conditions = append(withoutResizing(s.Conditions), corev1.PersistentVolumeClaimCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now), Message: message})
	return claim
}

// expandedTo returns a copy of a claim whose volume has a size and is not being expanded.
func expandedTo(claim *corev1.PersistentVolumeClaim, size resource.Quantity) *corev1.PersistentVolumeClaim {
	claim = claim.DeepCopy()
	s := &claim.Status
	s.Capacity[storage] = size
	if _, ok := s.AllocatedResources[storage]; ok {
		s.AllocatedResources[storage] = size
	}
	delete(s.AllocatedResourceStatuses, storage)
	s.Conditions = withoutResizing(s.Conditions)
	return claim
}

// withoutResizing returns the conditions that are not about an expansion.
func withoutResizing(conditions []corev1.PersistentVolumeClaimCondition) []corev1.PersistentVolumeClaimCondition {
	return slices.DeleteFunc(conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		switch c.Type {
		case corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending, corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError:
			return true
		}
		return false
	})
}
