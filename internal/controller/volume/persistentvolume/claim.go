package persistentvolume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	storagehelpers "k8s.io/component-helpers/storage/volume"

	"skiff/internal/client"
	"skiff/internal/controller"
	"skiff/internal/controller/volume"
)

// decideClaim decides what to do about a claim.
func (b *binder) decideClaim(claim *corev1.PersistentVolumeClaim) controller.Decision {
	if migrated := withMigration(claim.Annotations, storagehelpers.AnnStorageProvisioner, storagehelpers.AnnBetaStorageProvisioner); migrated != nil {
		changed := claim.DeepCopy()
		changed.Annotations = migrated
		return do(controller.Update(changed))
	}
	switch {
	case metav1.HasAnnotation(claim.ObjectMeta, storagehelpers.AnnBindCompleted):
		return b.decideBound(claim)
	case claim.Spec.VolumeName != "":
		return b.decideRequested(claim)
	default:
		return b.decideUnbound(claim)
	}
}

// do returns the Decision to carry out actions.
func do(actions ...controller.Action) controller.Decision {
	return controller.Decision{Actions: actions}
}

// stayPending returns the Decision to mark a claim as pending and to look at it again, after the actions.
func stayPending(claim *corev1.PersistentVolumeClaim, actions ...controller.Action) controller.Decision {
	if changed := withPhase(claim, corev1.ClaimPending); changed != nil {
		actions = append(actions, controller.UpdateStatus(changed))
	}
	return controller.Decision{Actions: actions, RequeueAfter: resyncPeriod}
}

// withPhase returns a claim that is bound to no volume in a phase, or nil if its status says so already.
func withPhase(claim *corev1.PersistentVolumeClaim, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
	if s := &claim.Status; s.Phase == phase && s.AccessModes == nil && s.Capacity == nil && s.CurrentVolumeAttributesClassName == nil {
		return nil
	}
	changed := claim.DeepCopy()
	s := &changed.Status
	s.Phase, s.AccessModes, s.Capacity, s.CurrentVolumeAttributesClassName = phase, nil, nil, nil
	return changed
}

// decideUnbound decides about a claim that asks for any volume.
func (b *binder) decideUnbound(claim *corev1.PersistentVolumeClaim) controller.Decision {
	delayed, err := storagehelpers.IsDelayBindingMode(claim, b.classes)
	if err != nil {
		return controller.Decision{Err: err}
	}
	volume, err := b.find(claim, delayed)
	if err != nil {
		return controller.Decision{Err: fmt.Errorf("error finding PV for claim %q: %w", controller.KeyOf(claim), err)}
	}
	if volume != nil {
		return b.bind(claim, volume)
	}
	if class := b.defaultClass(); class != nil && !storagehelpers.PersistentVolumeClaimHasClass(claim) {
		changed := claim.DeepCopy()
		changed.Spec.StorageClassName = &class.Name
		return do(controller.Update(changed))
	}
	switch {
	case delayed && !storagehelpers.IsDelayBindingProvisioning(claim):
		return stayPending(claim, b.waitsForConsumer(claim))
	case storagehelpers.GetPersistentVolumeClaimClass(claim) != "":
		return b.provision(claim)
	default:
		return stayPending(claim, controller.Event(claim, corev1.EventTypeNormal, "FailedBinding", "no persistent volumes available for this claim and no storage class is set"))
	}
}

// waitsForConsumer returns the Event of a claim whose volume is chosen when its pod is scheduled.
func (b *binder) waitsForConsumer(claim *corev1.PersistentVolumeClaim) controller.Action {
	var names []string
	for _, pod := range b.podsOf(controller.KeyOf(claim)) {
		if pod.Spec.NodeName == "" && !volume.HasEnded(pod) {
			names = append(names, pod.Name)
		}
	}
	slices.Sort(names)
	switch len(names) {
	case 0:
		return controller.Event(claim, corev1.EventTypeNormal, "WaitForFirstConsumer", "waiting for first consumer to be created before binding")
	case 1:
		return controller.Event(claim, corev1.EventTypeNormal, "WaitForPodScheduled", "waiting for pod %s to be scheduled", names[0])
	default:
		return controller.Event(claim, corev1.EventTypeNormal, "WaitForPodScheduled", "waiting for pods %s to be scheduled", strings.Join(names, ","))
	}
}

// decideRequested decides about a claim whose creator asks for one volume.
func (b *binder) decideRequested(claim *corev1.PersistentVolumeClaim) controller.Decision {
	volume, err := b.volumes.Get(claim.Spec.VolumeName)
	if err != nil {
		return stayPending(claim)
	}
	switch {
	case volume.Spec.ClaimRef == nil:
		if why := mismatch(claim, volume); why != "" {
			return stayPending(claim, controller.Event(claim, corev1.EventTypeWarning, "VolumeMismatch", "Cannot bind to requested volume %q: %s", volume.Name, why))
		}
		chosen := b.reserved.choose(claim.UID, func(free func(*corev1.PersistentVolume) bool) *corev1.PersistentVolume {
			if free(volume) {
				return volume
			}
			return nil
		})
		if chosen == nil {
			return stayPending(claim) // the volume is being bound to another claim, which will be observed
		}
		return b.bind(claim, volume)
	case storagehelpers.IsVolumeBoundToClaim(volume, claim):
		return b.bind(claim, volume)
	}
	taken := controller.Event(claim, corev1.EventTypeWarning, "FailedBinding", "volume %q already bound to a different claim.", volume.Name)
	if metav1.HasAnnotation(claim.ObjectMeta, storagehelpers.AnnBoundByController) {
		d := do(taken)
		d.Err = fmt.Errorf("invalid binding of claim %q to volume %q: volume already claimed by %q", controller.KeyOf(claim), volume.Name, refKey(volume.Spec.ClaimRef))
		return d
	}
	return stayPending(claim, taken)
}

// decideBound decides about a claim that has been bound before.
func (b *binder) decideBound(claim *corev1.PersistentVolumeClaim) controller.Decision {
	if claim.Spec.VolumeName == "" {
		return b.lost(claim, "ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
	}
	volume, err := b.volumes.Get(claim.Spec.VolumeName)
	switch {
	case err != nil:
		return b.lost(claim, "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
	case volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID == claim.UID:
		return b.bind(claim, volume)
	default:
		return b.lost(claim, "ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
	}
}

// errStillBound says that a claim is bound after all: the informer of volumes has not observed it yet.
var errStillBound = errors.New("the volume is there")

// lost decides about a claim whose volume is gone, or is another claim's.
func (b *binder) lost(claim *corev1.PersistentVolumeClaim, reason, message string) controller.Decision {
	if claim.Status.Phase == corev1.ClaimLost {
		return controller.Nothing
	}
	changed := withPhase(claim, corev1.ClaimLost)
	return controller.Decision{
		Actions: []controller.Action{checkLost(claim), controller.UpdateStatus(changed), controller.Event(claim, corev1.EventTypeWarning, reason, "%s", message)},
		Then: func(err error) controller.Decision {
			if errors.Is(err, errStillBound) {
				return controller.Decision{RequeueAfter: resyncPeriod}
			}
			return controller.Decision{Err: err}
		},
	}
}

// checkLost returns an action that fails if a claim's volume is there and is no other claim's.
func checkLost(claim *corev1.PersistentVolumeClaim) controller.Action {
	name := claim.Spec.VolumeName
	return controller.Call(fmt.Sprintf("look whether volume %q is lost", name), func(ctx context.Context, c *client.Client) error {
		if name == "" {
			return nil
		}
		volume, err := c.Kubernetes().CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil && (volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID == claim.UID):
			return errStillBound
		}
		return err
	})
}
