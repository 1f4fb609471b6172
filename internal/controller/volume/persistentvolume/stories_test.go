package persistentvolume

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"skiff/internal/controller"
	"skiff/internal/controller/stories"
)

func TestStories(t *testing.T) {
	stories.Run(t, New, stories.Options{Prepare: prepare, Show: show})
}

// prepare lets a claim be Pending and ask for a gibibyte that one node writes, and a volume have that, and be Available if it has no claim, unless the
// story says otherwise. A class named later waits for consumers.
func prepare(obj controller.Object) {
	gibibyte, once := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	switch o := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		if o.Spec.Resources.Requests == nil {
			o.Spec.Resources.Requests = gibibyte
		}
		if o.Spec.AccessModes == nil {
			o.Spec.AccessModes = once
		}
		if o.Status.Phase == "" {
			o.Status.Phase = corev1.ClaimPending
		}
	case *corev1.PersistentVolume:
		if o.Spec.Capacity == nil {
			o.Spec.Capacity = gibibyte
		}
		if o.Spec.AccessModes == nil {
			o.Spec.AccessModes = once
		}
		if o.Status.Phase == "" && o.Spec.ClaimRef == nil {
			o.Status.Phase = corev1.VolumeAvailable
		}
	case *storagev1.StorageClass:
		mode := storagev1.VolumeBindingImmediate
		if o.Name == "later" {
			mode = storagev1.VolumeBindingWaitForFirstConsumer
		}
		o.VolumeBindingMode = &mode
	}
}

// show prints the binding of an object that is updated.
func show(a controller.Action) string {
	verb, subresource, obj, ok := controller.Written(a)
	if !ok || verb != "update" || subresource != "" {
		return ""
	}
	text := stories.YAML(obj, "metadata", "annotations") + stories.YAML(obj, "metadata", "finalizers") + stories.YAML(obj, "spec", "claimRef")
	if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok {
		if claim.Spec.VolumeName != "" {
			text += "volumeName: " + claim.Spec.VolumeName + "\n"
		}
		if claim.Spec.StorageClassName != nil {
			text += "storageClassName: " + *claim.Spec.StorageClassName + "\n"
		}
	}
	return text
}
