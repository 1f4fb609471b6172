// Package namespacelifecycle keeps objects out of namespaces that do not exist or are being deleted, and protects the namespaces a
// cluster cannot be without.
package namespacelifecycle

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/admission"
)

// Namespaces finds a namespace. A nil namespace and no error means there is none; fresh asks for the newest state.
type Namespaces func(ctx context.Context, name string, fresh bool) (*corev1.Namespace, error)

// New returns the plugin.
func New(find Namespaces) admission.Plugin { return &plugin{find} }

type plugin struct{ find Namespaces }

func (*plugin) Name() string { return "NamespaceLifecycle" }

func (*plugin) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update || op == admission.Delete
}

var immortal = map[string]bool{metav1.NamespaceDefault: true, metav1.NamespaceSystem: true, metav1.NamespacePublic: true}

// Admit refuses writes into namespaces that cannot take them.
func (p *plugin) Admit(ctx context.Context, a *admission.Attributes) error {
	isNamespace := a.Info.GVR.Group == "" && a.Info.GVR.Resource == "namespaces"
	if isNamespace && a.Operation == admission.Delete && immortal[a.Name] {
		return apierrors.NewForbidden(a.Info.GVR.GroupResource(), a.Name, fmt.Errorf("this namespace may not be deleted"))
	}
	// Deleting must work in a namespace that is ending, and access reviews ask about namespaces that need not exist.
	if isNamespace || a.Namespace == "" || a.Operation != admission.Create || a.Info.GVR.Group == "authorization.k8s.io" {
		return nil
	}
	namespace, err := p.find(ctx, a.Namespace, false)
	if err == nil && namespace == nil {
		namespace, err = p.find(ctx, a.Namespace, true)
	}
	if err != nil {
		return err
	}
	if namespace == nil {
		return apierrors.NewNotFound(corev1.Resource("namespaces"), a.Namespace)
	}
	if namespace.Status.Phase != corev1.NamespaceTerminating {
		return nil
	}
	refusal := apierrors.NewForbidden(a.Info.GVR.GroupResource(), a.Name,
		fmt.Errorf("unable to create new content in namespace %s because it is being terminated", a.Namespace))
	refusal.ErrStatus.Details.Causes = append(refusal.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", a.Namespace), Field: "metadata.namespace"})
	return refusal
}
