package admissionregistration

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/admissionregistration/v1alpha1"
	"skiff/internal/catalog/check"
)

// InitializerConfiguration names initializers for resources. Kubernetes had it from v1.7 to v1.13.
var InitializerConfiguration = catalog.Resource[v1alpha1.InitializerConfiguration]{
	Group: group, Version: "v1alpha1", Kind: "InitializerConfiguration", Plural: "initializerconfigurations",
	AnyFinalizer: true,
	Name:         validation.NameIsDNSSubdomain,
	Changed: func(new, old *v1alpha1.InitializerConfiguration) bool {
		return !reflect.DeepEqual(new.Initializers, old.Initializers)
	},
	Validate: validateInitializers,
	ValidateUpdate: func(new, _ *v1alpha1.InitializerConfiguration) field.ErrorList {
		return validateInitializers(new)
	},
	Complete: true,
}

func validateInitializers(c *v1alpha1.InitializerConfiguration) field.ErrorList {
	root := check.At(nil)
	for i := range c.Initializers {
		p, in := root.Item("initializers", i), &c.Initializers[i]
		for _, err := range utilvalidation.IsFullyQualifiedName(p.Path("name"), in.Name) {
			p.Add(err)
		}
		for j := range in.Rules {
			validateInitializerRule(p.Item("rules", j), &in.Rules[j])
		}
	}
	return root.Errors()
}

func validateInitializerRule(p *check.Part, r *v1alpha1.Rule) {
	p.Present("apiGroups", len(r.APIGroups) > 0, "")
	alone(p, "apiGroups", r.APIGroups, "API groups")
	p.Present("apiVersions", len(r.APIVersions) > 0, "")
	alone(p, "apiVersions", r.APIVersions, "API versions")
	for i, version := range r.APIVersions {
		p.Item("apiVersions", i).Present("", version != "", "")
	}
	p.Present("resources", len(r.Resources) > 0, "")
	for i, resource := range r.Resources {
		item := p.Item("resources", i)
		item.Present("", resource != "", "")
		if strings.Contains(resource, "/") {
			item.Invalid("", resource, "must not specify subresources")
		}
	}
	if len(r.Resources) > 1 && slices.Contains(r.Resources, "*") {
		p.Invalid("resources", r.Resources, "if '*' is present, must not specify other resources")
	}
}
