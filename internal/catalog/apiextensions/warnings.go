package apiextensions

import (
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiservervalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// warnings warns of formats that nothing checks and of sets whose items are no scalars, unless the old definition had them too.
func warnings(new, old *definition) []string {
	known := map[string]bool{}
	if old != nil {
		for _, warning := range oddities(old) {
			known[warning] = true
		}
	}
	return slices.DeleteFunc(oddities(new), func(warning string) bool { return known[warning] })
}

func oddities(d *definition) []string {
	var formats, sets []string
	seen := map[string]bool{}
	add := func(list *[]string, warning string) {
		if !seen[warning] {
			seen[warning] = true
			*list = append(*list, warning)
		}
	}
	version := environment.DefaultCompatibilityVersion()
	visit := func(s *apiextensionsv1.JSONSchemaProps) {
		if s.Format != "" {
			schema := &spec.Schema{SchemaProps: spec.SchemaProps{Format: s.Format, Type: []string{s.Type}}}
			for _, format := range apiservervalidation.GetUnrecognizedFormats(schema, version) {
				add(&formats, fmt.Sprintf("unrecognized format %q", format))
			}
		}
		if s.XListType != nil && *s.XListType == "set" && s.Items != nil && s.Items.Schema != nil {
			if t := s.Items.Schema.Type; t == "object" || t == "array" {
				add(&sets, fmt.Sprintf("x-kubernetes-list-type: set for items of type %q is not supported by server-side apply or CEL validation rules", t))
			}
		}
	}
	for i := range d.Spec.Versions {
		if v := d.Spec.Versions[i].Schema; v != nil {
			eachSchema(v.OpenAPIV3Schema, visit)
		}
	}
	slices.Sort(sets)
	return append(formats, sets...)
}
