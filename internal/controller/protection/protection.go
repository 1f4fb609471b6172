// Package protection keeps storage objects that are in use from going. Admission gives each a finalizer when it comes; when somebody deletes it, the
// finalizer is taken away once nobody uses the object any more: a claim is used by pods on nodes, a volume by the claim it is bound to, a
// VolumeAttributesClass by claims and volumes.
package protection

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/controller"
)

// The finalizers, by which everybody knows what is protected.
const (
	claimFinalizer  = "kubernetes.io/pvc-protection"
	volumeFinalizer = "kubernetes.io/pv-protection"
	classFinalizer  = "kubernetes.io/vac-protection"
)

// decide gives an object its finalizer, or takes it away. It asks whether the object is used only if that matters.
func decide(obj controller.Object, finalizer string, used func() bool) controller.Decision {
	has, deleted := slices.Contains(obj.GetFinalizers(), finalizer), obj.GetDeletionTimestamp() != nil
	finalizers := slices.Clone(obj.GetFinalizers())
	switch {
	case deleted && has && !used():
		finalizers = slices.DeleteFunc(finalizers, func(f string) bool { return f == finalizer })
	case !deleted && !has:
		finalizers = append(finalizers, finalizer)
	default:
		return controller.Nothing
	}
	changed := obj.DeepCopyObject().(controller.Object)
	changed.SetFinalizers(finalizers)
	return controller.Decision{Actions: []controller.Action{controller.Update(changed)}}
}

// claimOf is the name of the claim that a volume of a pod is, or empty.
func claimOf(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

// uses says whether a pod uses a claim. One that is on no node does not: no kubelet starts a pod with a claim that is being deleted. Of a claim
// that was made for a pod it is enough that the node is done with that.
func uses(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	if pod.Spec.NodeName == "" {
		return false
	}
	done := pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return claimOf(pod, &v) == claim.Name && (v.Ephemeral == nil || !done && metav1.IsControlledBy(claim, pod))
	})
}
