package attachdetach

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"skiff/internal/controller"
	"skiff/internal/controller/stories"
)

func TestStories(t *testing.T) {
	stories.Run(t, New, stories.Options{Prepare: prepare, Show: func(a controller.Action) string {
		if verb, _, obj, ok := controller.Written(a); ok && verb == "create" {
			return stories.YAML(obj, "spec")
		}
		return ""
	}})
}

// prepare makes volumes of the driver example.com with their own names as handles, which are bound to the claims of the same names, and pods with one
// claim, which their label tells. A VolumeAttachment is named VOLUME.NODE. Nodes are ready and leave attaching to the loop.
func prepare(obj controller.Object) {
	switch o := obj.(type) {
	case *corev1.Node:
		if o.Annotations == nil {
			o.Annotations = map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
		}
		if o.Status.Conditions == nil {
			o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		}
	case *corev1.PersistentVolume:
		if o.Spec.HostPath == nil {
			o.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "example.com", VolumeHandle: o.Name}
		}
		if o.Spec.AccessModes == nil {
			o.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		}
		o.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: o.Name, UID: "uid-of-" + o.UID[len("uid-of-"):]}
	case *corev1.PersistentVolumeClaim:
		if o.Status.Phase == "" {
			o.Spec.VolumeName, o.Status.Phase = o.Name, corev1.ClaimBound
		}
	case *corev1.Pod:
		for _, claim := range strings.Fields(strings.ReplaceAll(o.Labels["claim"], ".", " ")) {
			o.Spec.Volumes = append(o.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
		}
	case *storagev1.VolumeAttachment:
		volume, node, ok := strings.Cut(o.Name, ".")
		if !ok {
			return
		}
		o.Spec = storagev1.VolumeAttachmentSpec{Attacher: "example.com", NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}}
		o.Name = attachmentName(volumeName(&corev1.CSIPersistentVolumeSource{Driver: "example.com", VolumeHandle: volume}), node)
	}
}
