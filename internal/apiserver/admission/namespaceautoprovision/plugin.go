package namespaceautoprovision

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/objects"
)

// Create creates a namespace, as a request of the server's own: through admission.
type Create func(context.Context, *corev1.Namespace) error

// New returns the plugin.
func New(r objects.Reader, create Create) admission.Plugin { return &plugin{r, create} }

type plugin struct {
	objects objects.Reader
	create  Create
}

var namespaces = corev1.Resource("namespaces")

func (*plugin) Name() string { return "NamespaceAutoProvision" }

func (*plugin) Handles(a *admission.Attributes) bool {
	return a.Operation == admission.Create && a.Namespace != "" && !a.DryRun && !(a.Info.GVK.Group == "" && a.Info.GVK.Kind == "Namespace")
}

// Admit creates the namespace of the object unless it exists.
func (p *plugin) Admit(ctx context.Context, a *admission.Attributes) error {
	if p.objects.Get(namespaces, "", a.Namespace) != nil {
		return nil
	}
	err := p.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.Namespace}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return a.Forbidden(err)
	}
	return nil
}
