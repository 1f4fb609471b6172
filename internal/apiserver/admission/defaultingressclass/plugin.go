package defaultingressclass

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/lister"
	"skiff/internal/apiserver/objects"
)

// New returns the plugin. Of several default classes the newest is used.
func New(r objects.Reader) admission.Plugin {
	isDefault := func(c *networkingv1.IngressClass) bool {
		return c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true"
	}
	return &plugin{lister.Choose(r, networkingv1.Resource("ingressclasses"), isDefault, lister.NewestFirst)}
}

type plugin struct {
	class *lister.Chosen[*networkingv1.IngressClass]
}

// classAnnotation names the class of an Ingress in the way that was used before spec.ingressClassName existed.
const classAnnotation = "kubernetes.io/ingress.class"

var ingresses = networkingv1.Resource("ingresses")

func (*plugin) Name() string { return "DefaultIngressClass" }

func (*plugin) Handles(a *admission.Attributes) bool {
	return a.Is(ingresses) && a.Subresource == "" && a.Operation == admission.Create
}

// Admit sets the default class, unless the Ingress names one in the field or in the older annotation.
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
