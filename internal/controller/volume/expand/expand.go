package expand

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/controller"
	"skiff/internal/controller/volume"
)

const (
	// preResizeCapacity is the annotation of a volume whose file system has not been resized yet.
	preResizeCapacity = "volume.alpha.kubernetes.io/pre-resize-capacity"
	// resizer is the annotation of a claim that names who expands its volume.
	resizer = "volume.kubernetes.io/storage-resizer"
)

// New returns the loop. Its keys are PersistentVolumeClaims.
func New(deps controller.Deps) controller.Loop {
	core := deps.Informers.Core().V1()
	claims, volumes := core.PersistentVolumeClaims().Lister(), core.PersistentVolumes().Lister()
	return controller.Loop{
		Name: "persistentvolume-expander-controller", ServiceAccount: "expand-controller", EventSource: "volume_expand", QueueName: "volume_expand",
		Watch: []controller.Watch{
			{Informer: core.PersistentVolumeClaims().Informer(), Type: &corev1.PersistentVolumeClaim{}, Keys: expanded},
			{Informer: core.PersistentVolumes().Informer(), Type: &corev1.PersistentVolume{}, Keys: func(_, _ metav1.Object) []controller.Key { return nil }},
		},
		Reconcile: func(key controller.Key, _ time.Time) controller.Decision {
			claim, err := claims.PersistentVolumeClaims(key.Namespace).Get(key.Name)
			if err != nil || claim.Status.Phase != corev1.ClaimBound {
				return controller.Nothing
			}
			v, err := volumes.Get(claim.Spec.VolumeName)
			if err != nil {
				return controller.Decision{Err: fmt.Errorf("failed to get PV %q: %w", claim.Spec.VolumeName, err)}
			}
			return decide(claim, v)
		},
	}
}

// expanded returns a bound claim that is new, or asks for more or has more than before.
func expanded(before, after metav1.Object) []controller.Key {
	claim, ok := after.(*corev1.PersistentVolumeClaim)
	if !ok || claim.Status.Phase != corev1.ClaimBound {
		return nil
	}
	if old, ok := before.(*corev1.PersistentVolumeClaim); ok && wants(claim) <= wants(old) && has(claim) <= has(old) {
		return nil
	}
	return []controller.Key{controller.KeyOf(claim)}
}

func wants(claim *corev1.PersistentVolumeClaim) int64 {
	return claim.Spec.Resources.Requests.Storage().Value()
}

func has(claim *corev1.PersistentVolumeClaim) int64 {
	size := claim.Status.Capacity[corev1.ResourceStorage]
	return size.Value()
}

// decide says who expands a claim's volume, if it is too small.
func decide(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) controller.Decision {
	if ref := v.Spec.ClaimRef; ref == nil || ref.Namespace != claim.Namespace || ref.UID != claim.UID {
		return controller.Decision{Err: fmt.Errorf("PersistentVolume %q is not bound to the claim %s, which is bound to it", v.Name, controller.KeyOf(claim))}
	}
	if wants(claim) <= has(claim) && !metav1.HasAnnotation(v.ObjectMeta, preResizeCapacity) {
		return controller.Nothing
	}
	was := volume.InTreePlugin(v)
	if was == "" {
		return controller.Decision{Actions: []controller.Action{controller.Event(claim, corev1.EventTypeNormal, "ExternalExpanding", "waiting for an external controller to expand this PVC")}}
	}
	actions := []controller.Action{controller.Event(claim, corev1.EventTypeNormal, "ExternalExpanding", "CSI migration enabled for %s; waiting for external resizer to expand the pvc", was)}
	if driver := volume.MigratedTo[was]; claim.Annotations[resizer] != driver {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{resizer: driver}, "uid": claim.UID}})
		if err != nil {
			return controller.Decision{Err: err}
		}
		actions = append(actions, controller.Patch(claim, "status", types.MergePatchType, patch))
	}
	return controller.Decision{Actions: actions}
}
