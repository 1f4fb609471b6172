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

// The finalizers of protected objects, as upstream's.
const (
	claimFinalizer  = "kubernetes.io/pvc-protection"
	volumeFinalizer = "kubernetes.io/pv-protection"
	classFinalizer  = "kubernetes.io/vac-protection"
)

// errUsed says that an object is in use after all.
var errUsed = errors.New("it is used")

// decide adds the finalizer to an object, or removes it from a deleted one. It calls used only if that matters. The actions of check are carried out
// before the finalizer is removed, and return errUsed if it must not be.
func decide(obj controller.Object, finalizer string, used func() bool, check ...controller.Action) controller.Decision {
	var actions []controller.Action
	has, deleted := slices.Contains(obj.GetFinalizers(), finalizer), obj.GetDeletionTimestamp() != nil
	finalizers := slices.Clone(obj.GetFinalizers())
	switch {
	case deleted && has && !used():
		finalizers = slices.DeleteFunc(finalizers, func(f string) bool { return f == finalizer })
		actions = check
	case !deleted && !has:
		finalizers = append(finalizers, finalizer)
	default:
		return controller.Nothing
	}
	changed := obj.DeepCopyObject().(controller.Object)
	changed.SetFinalizers(finalizers)
	return controller.Decision{Actions: append(slices.Clip(actions), controller.Update(changed)), Then: func(err error) controller.Decision {
		if errors.Is(err, errUsed) {
			err = nil // its user will be observed soon; when that is gone, the object is reconciled again
		}
		return controller.Decision{Err: err}
	}}
}

// checkUnused returns an action that fails if a pod uses a claim: a new pod may not have been observed yet, and what it writes must not be lost.
func checkUnused(claim *corev1.PersistentVolumeClaim) controller.Action {
	return controller.Call("look for pods with claim "+controller.KeyOf(claim).String(), func(ctx context.Context, c *client.Client) error {
		pods, err := c.Kubernetes().CoreV1().Pods(claim.Namespace).List(ctx, metav1.ListOptions{})
		if err == nil && slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return uses(&pod, claim) }) {
			err = errUsed
		}
		return err
	})
}

// claimOf returns the name of the claim of a pod's volume, or "".
func claimOf(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

// uses reports whether a pod uses a claim. A pod that is not bound does not: no kubelet starts a pod with a claim that is being deleted. A claim that was
// created for the pod is unused once the kubelet has terminated the pod.
func uses(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	if pod.Spec.NodeName == "" {
		return false
	}
	terminated := pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return claimOf(pod, &v) == claim.Name && (v.Ephemeral == nil || !terminated && metav1.IsControlledBy(claim, pod))
	})
}
