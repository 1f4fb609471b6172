package apiextensions

import (
	"slices"

	internal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// walker visits a schema and all schemas within, and collects what is wrong with them.
type walker struct {
	*schema
	schemaErrors, expressionErrors field.ErrorList
	total                          totalCost
	reported                       int // the length of all errors
}

// place is where a schema is, and what that means for it.
type place struct {
	path       *field.Path
	root       bool
	inMetadata bool   // whether it describes apiVersion, kind or metadata of an object
	noDefaults string // why there may be no default here; empty if there may
	// uncorrelated is the outermost part of the schema whose old and new values cannot be matched; nil if all can.
	uncorrelated *field.Path
	structural   *structuralschema.Structural // nil if it is not known
	scope        *scope                       // nil if rules are not compiled here
}

// below returns the place of a schema within, at a path.
func (at place) below(path *field.Path) place {
	at.path, at.root, at.structural, at.scope = path, false, nil, nil
	return at
}

func (at place) unmatched(path *field.Path) place {
	if at.uncorrelated == nil {
		at.uncorrelated = path
	}
	return at
}

var openAPITypes = []string{"array", "boolean", "integer", "number", "object", "string"}

// visit validates a schema and what is within. Rules are compiled only where nothing else is wrong, at this schema or below.
func (w *walker) visit(s *internal.JSONSchemaProps, at place) {
	if s == nil || w.reported > longestReport {
		return
	}
	before := len(w.schemaErrors)
	w.validateFields(s, at)
	w.visitAdditional(s, at)
	w.visitProperties(s, at)
	w.visit(s.Not, at.below(at.path.Child("not")))
	for _, list := range []struct {
		name    string
		schemas []internal.JSONSchemaProps
	}{{"allOf", s.AllOf}, {"oneOf", s.OneOf}, {"anyOf", s.AnyOf}} {
		for i := range list.schemas {
			w.visit(&list.schemas[i], at.below(at.path.Child(list.name).Index(i)))
		}
	}
	for _, name := range sortedKeys(s.Definitions) {
		child := s.Definitions[name]
		w.visit(&child, at.below(at.path.Child("definitions").Key(name)))
	}
	w.visitItems(s, at)
	for _, name := range sortedKeys(s.Dependencies) {
		w.visit(s.Dependencies[name].Schema, at.below(at.path.Child("dependencies").Key(name)))
	}
	w.validateExtensions(s, at.path)
	for i := range s.XValidations {
		w.validateRule(s, i, at)
	}
	if len(s.XValidations) > 0 && at.scope != nil && len(w.schemaErrors) == before {
		w.compileRules(s, at)
	}
}

func (w *walker) add(errs ...*field.Error) {
	for _, err := range errs {
		w.reported += len(err.Field) + len(err.Detail)
	}
	w.schemaErrors = append(w.schemaErrors, errs...)
}

// validateFields forbids the parts of JSON Schema that Kubernetes does not support.
func (w *walker) validateFields(s *internal.JSONSchemaProps, at place) {
	forbid := func(forbidden bool, name, detail string) {
		if forbidden {
			w.add(field.Forbidden(at.path.Child(name), detail))
		}
	}
	if s.Type != "" && !slices.Contains(openAPITypes, s.Type) && !w.lenient.unknownTypes() {
		w.add(field.NotSupported(at.path.Child("type"), s.Type, openAPITypes))
	}
	forbid(s.Default != nil && at.noDefaults != "", "default", "must not be set "+at.noDefaults)
	forbid(s.ID != "", "id", "id is not supported")
	forbid(s.AdditionalItems != nil, "additionalItems", "additionalItems is not supported")
	forbid(len(s.PatternProperties) > 0, "patternProperties", "patternProperties is not supported")
	forbid(len(s.Definitions) > 0, "definitions", "definitions is not supported")
	forbid(s.Dependencies != nil, "dependencies", "dependencies is not supported")
	forbid(s.Ref != nil, "$ref", "$ref is not supported")
	forbid(s.Type == "null", "type", "type cannot be set to null, use nullable as an alternative")
	forbid(s.Items != nil && len(s.Items.JSONSchemas) > 0, "items", "items must be a schema object and not an array")
	forbid(at.inMetadata && s.XEmbeddedResource, "x-kubernetes-embedded-resource", "must not be used inside of resource meta")
	forbid(s.UniqueItems, "uniqueItems", "uniqueItems cannot be set to true since the runtime complexity becomes quadratic")
}

func (w *walker) visitAdditional(s *internal.JSONSchemaProps, at place) {
	additional := s.AdditionalProperties
	if additional == nil {
		return
	}
	path := at.path.Child("additionalProperties")
	if len(s.Properties) > 0 && (!additional.Allows || additional.Schema != nil) {
		w.add(field.Forbidden(path, "additionalProperties and properties are mutual exclusive"))
	}
	if additional.Schema == nil {
		return
	}
	next := at.below(path)
	if at.inMetadata {
		next.noDefaults = "inside additionalProperties applying to object metadata"
	}
	if at.structural != nil && at.structural.AdditionalProperties != nil {
		next.structural = at.structural.AdditionalProperties.Structural
	}
	next.scope = at.scope.additional(additional.Schema, next.structural)
	w.visit(additional.Schema, next)
}

func (w *walker) visitProperties(s *internal.JSONSchemaProps, at place) {
	if len(s.Properties) == 0 {
		return
	}
	properties := at.path.Child("properties")
	for _, name := range sortedKeys(s.Properties) {
		child := s.Properties[name]
		next := at.below(properties.Key(name))
		if !cel.MapIsCorrelatable(s.XMapType) {
			next = next.unmatched(at.path)
		}
		if (at.root || s.XEmbeddedResource) && (name == "metadata" || name == "kind" || name == "apiVersion") {
			next.inMetadata = true
			if at.root {
				next.noDefaults = "in top-level " + name
			}
		}
		if at.structural != nil {
			if structural, ok := at.structural.Properties[name]; ok {
				next.structural = &structural
			}
		}
		next.scope = at.scope.property(name, &child, next.structural)
		w.visit(&child, next)
	}
}

func (w *walker) visitItems(s *internal.JSONSchemaProps, at place) {
	if s.Items == nil {
		return
	}
	path := at.path.Child("items")
	next := at.below(path)
	if s.XListType == nil || *s.XListType != "map" {
		next = next.unmatched(at.path)
	}
	if s.Items.Schema != nil {
		item := next
		if at.structural != nil {
			item.structural = at.structural.Items
		}
		item.scope = at.scope.item(s.Items.Schema, item.structural)
		w.visit(s.Items.Schema, item)
	}
	for i := range s.Items.JSONSchemas { // refused above: its rules are not compiled
		next.path = path.Index(i)
		w.visit(&s.Items.JSONSchemas[i], next)
	}
}
