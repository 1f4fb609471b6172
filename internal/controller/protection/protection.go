// Package protection keeps storage objects that are in use from going. Admission gives each a finalizer when it comes; when somebody deletes it, the
// finalizer is taken away once nobody uses the object any more: a claim is used by pods on nodes, a volume by the claim it is bound to, a
// VolumeAttributesClass by claims and volumes.
package protection

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/client"
	"skiff/internal/controller"
)

// The finalizers, by which everybody knows what is protected.
const (
	claimFinalizer  = "kubernetes.io/pvc-protection"
	volumeFinalizer = "kubernetes.io/pv-protection"
	classFinalizer  = "kubernetes.io/vac-protection"
)

// errUsed is that an object is used after all.
var errUsed = errors.New("it is used")

// decide gives an object its finalizer, or takes it away. It asks whether the object is used only if that matters; sure, if there are such, are done
// before it is taken away, and return errUsed if it must not be.
func decide(obj controller.Object, finalizer string, used func() bool, sure ...controller.Action) controller.Decision {
	var actions []controller.Action
	has, deleted := slices.Contains(obj.GetFinalizers(), finalizer), obj.GetDeletionTimestamp() != nil
	finalizers := slices.Clone(obj.GetFinalizers())
	switch {
	case deleted && has && !used():
		finalizers = slices.DeleteFunc(finalizers, func(f string) bool { return f == finalizer })
		actions = sure
	case !deleted && !has:
		finalizers = append(finalizers, finalizer)
	default:
		return controller.Nothing
	}
	changed := obj.DeepCopyObject().(controller.Object)
	changed.SetFinalizers(finalizers)
	return controller.Decision{Actions: append(slices.Clip(actions), controller.Update(changed)), Then: func(err error) controller.Decision {
		if errors.Is(err, errUsed) {
			err = nil // who uses it is about to be known here; when that one goes, it is looked at again
		}
		return controller.Decision{Err: err}
	}}
}

// unused makes sure that no pod uses a claim: one that came just now may not be known here yet, and what it writes must not be lost.
func unused(claim *corev1.PersistentVolumeClaim) controller.Action {
	return controller.Call("look for pods with claim "+controller.KeyOf(claim).String(), func(ctx context.Context, c *client.Client) error {
		pods, err := c.Kubernetes().CoreV1().Pods(claim.Namespace).List(ctx, metav1.ListOptions{})
		if err == nil && slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return uses(&pod, claim) }) {
			err = errUsed
		}
		return err
	})
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
