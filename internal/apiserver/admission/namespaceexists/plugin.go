package namespaceexists

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/lister"
	"skiff/internal/apiserver/objects"
)

// New returns the plugin.
func New(r objects.Reader) admission.Plugin { return &plugin{r} }

type plugin struct{ objects objects.Reader }

func (*plugin) Name() string { return "NamespaceExists" }

func (*plugin) Handles(a *admission.Attributes) bool {
	return a.Operation != admission.Connect && a.Namespace != "" && !(a.Info.GVK.Group == "" && a.Info.GVK.Kind == "Namespace")
}

// Validate refuses a write in a namespace that does not exist.
func (p *plugin) Validate(ctx context.Context, a *admission.Attributes) error {
	_, err := lister.Namespace(ctx, p.objects, a.Namespace)
	if err != nil && !apierrors.IsNotFound(err) {
		return apierrors.NewInternalError(err)
	}
	return err
}
