package networking

import (
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
)

var IngressClass = catalog.Resource[networkingv1.IngressClass]{
	Group: group, Version: "v1", Kind: "IngressClass", Plural: "ingressclasses",
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Default: func(c *networkingv1.IngressClass) {
		if p := c.Spec.Parameters; p != nil && p.Scope == nil {
			scope := networkingv1.IngressClassParametersReferenceScopeCluster
			p.Scope = &scope
		}
	},
	Changed: catalog.SpecChanged[networkingv1.IngressClass],
	Validate: func(c *networkingv1.IngressClass) field.ErrorList {
		spec := check.At(field.NewPath("spec"))
		validateIngressClass(spec, &c.Spec)
		return spec.Errors()
	},
	ValidateUpdate: func(new, old *networkingv1.IngressClass) field.ErrorList {
		spec := check.At(field.NewPath("spec"))
		spec.Immutable("controller", new.Spec.Controller, old.Spec.Controller)
		validateIngressClass(spec, &new.Spec)
		return spec.Errors()
	},
	Columns: []catalog.Column[networkingv1.IngressClass]{
		ingressClassNameColumn(),
		{Name: "Controller", Description: "Controller that is responsible for handling this class",
			Cell: func(c *networkingv1.IngressClass, _ time.Time) any { return c.Spec.Controller }},
		{Name: "Parameters", Description: "A reference to a resource with additional parameters",
			Cell: func(c *networkingv1.IngressClass, _ time.Time) any { return parameters(c.Spec.Parameters) }},
		catalog.AgeColumn[networkingv1.IngressClass](),
	},
	Complete: true,
}

const maxController = 250

func validateIngressClass(spec *check.Part, s *networkingv1.IngressClassSpec) {
	if len(s.Controller) > maxController {
		spec.Add(field.TooLong(spec.Path("controller"), "", maxController))
	}
	spec.Add(utilvalidation.IsDomainPrefixedPath(spec.Path("controller"), s.Controller)...)
	if s.Parameters == nil {
		return
	}
	params, p := s.Parameters, spec.Child("parameters")
	if params.APIGroup != nil {
		p.Format("apiGroup", *params.APIGroup, utilvalidation.IsDNS1123Subdomain)
	}
	segment(p, p.Later(), "kind", params.Kind)
	segment(p, p.Later(), "name", params.Name)
	if params.Scope == nil {
		p.Required("scope", "")
		return
	}
	switch *params.Scope {
	case networkingv1.IngressClassParametersReferenceScopeNamespace:
		if params.Namespace == nil {
			p.Required("namespace", "`parameters.scope` is set to 'Namespace'")
		} else {
			p.Format("namespace", *params.Namespace, utilvalidation.IsDNS1123Label)
		}
	case networkingv1.IngressClassParametersReferenceScopeCluster:
		if params.Namespace != nil {
			p.Forbidden("namespace", "`parameters.scope` is set to 'Cluster'")
		}
	default:
		check.OneOf(p, "scope", *params.Scope, networkingv1.IngressClassParametersReferenceScopeCluster,
			networkingv1.IngressClassParametersReferenceScopeNamespace)
	}
}

// ingressClassNameColumn returns the name column, which marks the default class.
func ingressClassNameColumn() catalog.Column[networkingv1.IngressClass] {
	column := catalog.NameColumn[networkingv1.IngressClass]()
	column.Cell = func(c *networkingv1.IngressClass, _ time.Time) any {
		if c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
			return c.Name + " (default)"
		}
		return c.Name
	}
	return column
}

func parameters(p *networkingv1.IngressClassParametersReference) string {
	if p == nil {
		return "<none>"
	}
	kind := p.Kind
	if p.APIGroup != nil {
		kind += "." + *p.APIGroup
	}
	return kind + "/" + p.Name
}
