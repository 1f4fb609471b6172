package apiextensions

import (
	"maps"
	"slices"

	internal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// schemasOf returns the schemas of a definition: one that all versions share, or one per version.
func schemasOf(s *internal.CustomResourceDefinitionSpec) []*internal.JSONSchemaProps {
	var schemas []*internal.JSONSchemaProps
	if s.Validation != nil && s.Validation.OpenAPIV3Schema != nil {
		schemas = append(schemas, s.Validation.OpenAPIV3Schema)
	}
	for i := range s.Versions {
		if v := s.Versions[i].Schema; v != nil && v.OpenAPIV3Schema != nil {
			schemas = append(schemas, v.OpenAPIV3Schema)
		}
	}
	return schemas
}

// anySchema reports whether a condition holds for any schema of a definition, at any depth.
func anySchema(s *internal.CustomResourceDefinitionSpec, holds func(*internal.JSONSchemaProps) bool) bool {
	return slices.ContainsFunc(schemasOf(s), func(s *internal.JSONSchemaProps) bool { return within(s, holds) })
}

// within reports whether a condition holds for a schema or any below it, which it asks in the order of their names.
func within(s *internal.JSONSchemaProps, holds func(*internal.JSONSchemaProps) bool) bool {
	if s == nil {
		return false
	}
	if holds(s) {
		return true
	}
	if s.Items != nil && (within(s.Items.Schema, holds) || withinList(s.Items.JSONSchemas, holds)) {
		return true
	}
	if withinList(s.AllOf, holds) || withinList(s.AnyOf, holds) || withinList(s.OneOf, holds) || within(s.Not, holds) || withinMap(s.Properties, holds) {
		return true
	}
	if s.AdditionalProperties != nil && within(s.AdditionalProperties.Schema, holds) || withinMap(s.PatternProperties, holds) {
		return true
	}
	if s.AdditionalItems != nil && within(s.AdditionalItems.Schema, holds) || withinMap(s.Definitions, holds) {
		return true
	}
	for _, name := range sortedKeys(s.Dependencies) {
		if within(s.Dependencies[name].Schema, holds) {
			return true
		}
	}
	return false
}

func withinList(list []internal.JSONSchemaProps, holds func(*internal.JSONSchemaProps) bool) bool {
	for i := range list {
		if within(&list[i], holds) {
			return true
		}
	}
	return false
}

func withinMap(schemas map[string]internal.JSONSchemaProps, holds func(*internal.JSONSchemaProps) bool) bool {
	for _, name := range sortedKeys(schemas) {
		child := schemas[name]
		if within(&child, holds) {
			return true
		}
	}
	return false
}

// eachSchema visits a schema and all below it that a valid definition may have, in the order of their names. The visitor may change what
// they point to.
func eachSchema(s *apiextensionsv1.JSONSchemaProps, visit func(*apiextensionsv1.JSONSchemaProps)) {
	if s == nil {
		return
	}
	visit(s)
	for _, list := range [][]apiextensionsv1.JSONSchemaProps{s.AllOf, s.AnyOf, s.OneOf} {
		for i := range list {
			eachSchema(&list[i], visit)
		}
	}
	eachSchema(s.Not, visit)
	for _, name := range sortedKeys(s.Properties) {
		child := s.Properties[name]
		eachSchema(&child, visit)
	}
	if s.Items != nil {
		eachSchema(s.Items.Schema, visit)
	}
	if s.AdditionalProperties != nil {
		eachSchema(s.AdditionalProperties.Schema, visit)
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
