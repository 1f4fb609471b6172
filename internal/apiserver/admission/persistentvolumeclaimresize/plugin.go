package persistentvolumeclaimresize

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/objects"
)

// New returns the plugin.
func New(r objects.Reader) admission.Plugin { return plugin{r} }

type plugin struct{ reader objects.Reader }

var (
	claims  = corev1.Resource("persistentvolumeclaims")
	classes = storagev1.Resource("storageclasses")
)

func (plugin) Name() string { return "PersistentVolumeClaimResize" }

func (plugin) Handles(a *admission.Attributes) bool {
	return a.Is(claims) && a.Subresource == "" && a.Operation == admission.Update
}

// Validate refuses a larger request of a claim that cannot be expanded.
func (p plugin) Validate(_ context.Context, a *admission.Attributes) error {
	claim, ok := a.Object.(*corev1.PersistentVolumeClaim)
	old, was := a.Old.(*corev1.PersistentVolumeClaim)
	if !ok || !was {
		return nil
	}
	wants, wanted := claim.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
	switch {
	case wants.Cmp(wanted) <= 0:
		return nil
	case old.Status.Phase != corev1.ClaimBound:
		return a.Forbidden(errors.New("Only bound persistent volume claims can be expanded"))
	case !p.expandable(claim, old):
		return a.Forbidden(errors.New("only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"))
	}
	return nil
}

// expandable reports whether the class of a claim allows expansion.
func (p plugin) expandable(claim, old *corev1.PersistentVolumeClaim) bool {
	name := classOf(claim)
	if name == "" || name != classOf(old) {
		return false
	}
	class, ok := p.reader.Get(classes, "", name).(*storagev1.StorageClass)
	return ok && class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion
}

// classOf returns the name of a claim's class; the older annotation goes before the field.
func classOf(claim *corev1.PersistentVolumeClaim) string {
	if name, ok := claim.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return name
	}
	if claim.Spec.StorageClassName != nil {
		return *claim.Spec.StorageClassName
	}
	return ""
}
