package defaultstorageclass

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/lister"
	"skiff/internal/apiserver/objects"
)

// New returns the plugin. Of several default classes the newest is used.
func New(r objects.Reader) admission.Plugin {
	return &plugin{lister.Choose(r, storagev1.Resource("storageclasses"), isDefault, lister.NewestFirst)}
}

type plugin struct {
	class *lister.Chosen[*storagev1.StorageClass]
}

const (
	defaultClass     = "storageclass.kubernetes.io/is-default-class"
	betaDefaultClass = "storageclass.beta.kubernetes.io/is-default-class"
)

func isDefault(c *storagev1.StorageClass) bool {
	return c.Annotations[defaultClass] == "true" || c.Annotations[betaDefaultClass] == "true"
}

var claims = corev1.Resource("persistentvolumeclaims")

func (*plugin) Name() string { return "DefaultStorageClass" }

func (*plugin) Handles(a *admission.Attributes) bool {
	return a.Is(claims) && a.Subresource == "" && a.Operation == admission.Create
}

// Admit sets the default class. A claim with an empty class name keeps it: it asks for no class.
func (p *plugin) Admit(_ context.Context, a *admission.Attributes) error {
	claim, ok := a.Object.(*corev1.PersistentVolumeClaim)
	if !ok || claim.Spec.StorageClassName != nil {
		return nil
	}
	if _, named := claim.Annotations[corev1.BetaStorageClassAnnotation]; named {
		return nil
	}
	if class, ok := p.class.Get(); ok {
		name := class.Name
		claim.Spec.StorageClassName = &name
	}
	return nil
}
