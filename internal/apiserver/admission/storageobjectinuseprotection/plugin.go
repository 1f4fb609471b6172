package storageobjectinuseprotection

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"skiff/internal/apiserver/admission"
)

// New returns the plugin.
func New() admission.Plugin { return plugin{} }

type plugin struct{}

var (
	volumes = corev1.Resource("persistentvolumes")
	claims  = corev1.Resource("persistentvolumeclaims")
	classes = storagev1.Resource("volumeattributesclasses")
)

func (plugin) Name() string { return "StorageObjectInUseProtection" }

func (plugin) Handles(a *admission.Attributes) bool {
	return a.Operation == admission.Create && a.Subresource == "" && finalizer(a) != ""
}

func finalizer(a *admission.Attributes) string {
	switch {
	case a.Is(volumes):
		return "kubernetes.io/pv-protection"
	case a.Is(claims):
		return "kubernetes.io/pvc-protection"
	case a.Is(classes):
		return "kubernetes.io/vac-protection"
	default:
		return ""
	}
}

// Admit adds the protection finalizer of the object's kind.
func (plugin) Admit(_ context.Context, a *admission.Attributes) error {
	if f := finalizer(a); !slices.Contains(a.Object.GetFinalizers(), f) {
		a.Object.SetFinalizers(append(a.Object.GetFinalizers(), f))
	}
	return nil
}
