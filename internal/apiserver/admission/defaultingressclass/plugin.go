// Package defaultingressclass gives ingresses that name no class the cluster's default one.
package defaultingressclass

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/followed"
	"skiff/internal/apiserver/objects"
)

// New returns the plugin. Of several default classes the newest counts.
func New(r objects.Reader) admission.Plugin {
	isDefault := func(c *networkingv1.IngressClass) bool {
		return c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true"
	}
	return &plugin{followed.Choose(r, networkingv1.Resource("ingressclasses"), isDefault, followed.NewestFirst)}
}

type plugin struct {
	class *followed.Chosen[*networkingv1.IngressClass]
}

// classAnnotation names a class as ingresses did before there was a field for it.
const classAnnotation = "kubernetes.io/ingress.class"

var ingresses = networkingv1.Resource("ingresses")

func (*plugin) Name() string { return "DefaultIngressClass" }

func (*plugin) Handles(a *admission.Attributes) bool {
	return a.Is(ingresses) && a.Subresource == "" && a.Operation == admission.Create
}

// Admit names the default class, unless the ingress names one, in the field or in the annotation that came before it.
func (p *plugin) Admit(_ context.Context, a *admission.Attributes) error {
	ingress, ok := a.Object.(*networkingv1.Ingress)
	if !ok || ingress.Spec.IngressClassName != nil {
		return nil
	}
	if _, named := ingress.Annotations[classAnnotation]; named {
		return nil
	}
	if class, ok := p.class.Get(); ok {
		name := class.Name
		ingress.Spec.IngressClassName = &name
	}
	return nil
}
