package localvolume

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"skiff/internal/controller"
	"skiff/internal/controller/stories"
	"skiff/internal/localvolume"
)

func TestStories(t *testing.T) {
	stories.Run(t, New, stories.Options{Prepare: prepare, Show: show})
}

func TestDisabledStories(t *testing.T) {
	t.Chdir("testdata/disabled")
	stories.Run(t, func(deps controller.Deps) controller.Loop {
		deps.Config.DisableLocalStorage = true
		return New(deps)
	}, stories.Options{Prepare: prepare, Show: show})
}

// prepare lets claims be of the class local and ask for 1Gi, classes be the driver's, and volumes be those of the claim data, on the node n1.
func prepare(obj controller.Object) {
	switch o := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		o.UID = "1234"
		if o.Spec.StorageClassName == nil {
			class := className
			o.Spec.StorageClassName = &class
		}
		if o.Spec.AccessModes == nil {
			o.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		}
	case *storagev1.StorageClass:
		if o.Provisioner == "" {
			o.Provisioner = localvolume.Driver
		}
	case *corev1.PersistentVolume:
		if o.Spec.CSI == nil {
			o.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: localvolume.Driver, VolumeHandle: o.Name, VolumeAttributes: map[string]string{"node": "n1"}}
		}
		if o.Spec.ClaimRef == nil {
			o.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "data", UID: "1234"}
		}
	case *corev1.Node:
		if o.Labels == nil {
			o.Labels = map[string]string{corev1.LabelHostname: o.Name}
		}
	}
}

// show shows what is created, and what changes of objects that are updated.
func show(action controller.Action) string {
	verb, subresource, obj, ok := controller.Written(action)
	switch {
	case !ok, subresource != "", verb == "delete":
		return ""
	case verb == "create":
		if class, ok := obj.(*storagev1.StorageClass); ok {
			return stories.YAML(class)
		}
		return stories.YAML(obj, "metadata", "annotations") + stories.YAML(obj, "metadata", "finalizers") + stories.YAML(obj, "spec")
	}
	if pv, ok := obj.(*corev1.PersistentVolume); ok {
		return stories.YAML(pv, "metadata", "finalizers") + stories.YAML(pv, "spec", "capacity")
	}
	return stories.YAML(obj, "metadata", "annotations")
}
