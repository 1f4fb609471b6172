package apiextensions

import (
	"reflect"
	"slices"
	"sync"

	celgo "github.com/google/cel-go/cel"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	internal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	structuraldefaulting "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/cel/environment"

	"skiff/internal/catalog/webhook"
)

// leniency says which rules an update may break, because the old definition broke them already. On create there is no old
// definition and every rule holds. Each answer is computed when a rule is broken, and once.
type leniency struct {
	update, established bool
	old                 func() *internal.CustomResourceDefinitionSpec // empty on create

	noSchema, unknownTypes, notStructural, unprunedDefaults, granularSets, badMapKeys, unknownReviews func() bool
	expressions                                                                                       func() *expressions
}

// lenientTo returns the leniency of an update of a definition, and that of a creation if there is no old one.
func lenientTo(old *definition) *leniency {
	spec := sync.OnceValue(func() *internal.CustomResourceDefinitionSpec {
		if old != nil {
			if converted, err := toInternal(old); err == nil {
				return &converted.Spec
			}
		}
		return &internal.CustomResourceDefinitionSpec{}
	})
	anywhere := func(holds func(*internal.JSONSchemaProps) bool) func() bool {
		return sync.OnceValue(func() bool { return anySchema(spec(), holds) })
	}
	anyRoot := func(holds func(*internal.JSONSchemaProps) bool) func() bool {
		return sync.OnceValue(func() bool { return slices.ContainsFunc(schemasOf(spec()), holds) })
	}
	return &leniency{
		update: old != nil, old: spec,
		established:      old != nil && apihelpers.IsCRDConditionTrue(old, apiextensionsv1.Established),
		noSchema:         sync.OnceValue(func() bool { return lacksSchema(spec()) }),
		unknownTypes:     anywhere(func(s *internal.JSONSchemaProps) bool { return s.Type != "" && !slices.Contains(openAPITypes, s.Type) }),
		notStructural:    anyRoot(isNotStructural),
		unprunedDefaults: anyRoot(hasUnprunedDefaults),
		granularSets:     anywhere(hasGranularItems),
		badMapKeys:       anywhere(func(s *internal.JSONSchemaProps) bool { return len(listItemErrors(nil, s)) > 0 }),
		unknownReviews: func() bool {
			c := spec().Conversion
			return c != nil && len(c.ConversionReviewVersions) > 0 && !hasKnownReview(c.ConversionReviewVersions)
		},
		expressions: sync.OnceValue(func() *expressions { return expressionsOf(spec()) }),
	}
}

// lacksSchema reports whether a version of a definition has no schema.
func lacksSchema(s *internal.CustomResourceDefinitionSpec) bool {
	if s.Validation != nil && s.Validation.OpenAPIV3Schema != nil {
		return false
	}
	return slices.ContainsFunc(s.Versions, func(v internal.CustomResourceDefinitionVersion) bool {
		return v.Schema == nil || v.Schema.OpenAPIV3Schema == nil
	})
}

func isNotStructural(s *internal.JSONSchemaProps) bool {
	structural, err := structuralschema.NewStructural(s)
	return err != nil || len(structuralschema.ValidateStructural(nil, structural)) > 0
}

func hasDefaults(s *internal.JSONSchemaProps) bool {
	return within(s, func(s *internal.JSONSchemaProps) bool { return s.Default != nil })
}

// hasUnprunedDefaults reports whether a structural schema has a default with fields that it does not know.
func hasUnprunedDefaults(s *internal.JSONSchemaProps) bool {
	if !hasDefaults(s) || isNotStructural(s) {
		return false
	}
	structural, err := structuralschema.NewStructural(s)
	if err != nil {
		return false
	}
	pruned := structural.DeepCopy()
	return structuraldefaulting.PruneDefaults(pruned) == nil && !reflect.DeepEqual(structural, pruned)
}

// badCABundle reports whether the bundle of a conversion webhook may be invalid: until a definition is established, or if it was.
func (l *leniency) badCABundle() bool {
	if !l.established {
		return true
	}
	c := l.old().Conversion
	return c != nil && c.WebhookClientConfig != nil && webhook.CABundleError(c.WebhookClientConfig.CABundle) != nil
}

// manyFields reports whether a version may have too many selectable fields; the version is "" for the fields of all versions.
func (l *leniency) manyFields(version string, fields []internal.SelectableField) bool {
	old := l.old()
	before := old.SelectableFields
	if version != "" {
		i := slices.IndexFunc(old.Versions, func(v internal.CustomResourceDefinitionVersion) bool { return v.Name == version })
		if i < 0 {
			return false
		}
		before = old.Versions[i].SelectableFields
	}
	return len(before) > maxSelectableFields && apiequality.Semantic.DeepEqual(fields, before)
}

// sameSchema reports whether the schema of a version is unchanged, so that its expressions may cost more than they might today.
func (l *leniency) sameSchema(version string, new *internal.CustomResourceDefinitionSpec) bool {
	after, ok := schemaOf(new, version)
	before, was := schemaOf(l.old(), version)
	return l.update && ok && was && apiequality.Semantic.DeepEqual(after, before)
}

// schemaOf returns the schema of a version; false if there is no such version.
func schemaOf(s *internal.CustomResourceDefinitionSpec, version string) (*internal.CustomResourceValidation, bool) {
	if !internal.HasPerVersionSchema(s.Versions) {
		return s.Validation, true
	}
	for i := range s.Versions {
		if s.Versions[i].Name == version {
			return s.Versions[i].Schema, true
		}
	}
	return nil, false
}

// expressions are the CEL expressions of the old definition. They are compiled with everything that any release knew; new ones only with
// what the previous release knows too.
type expressions struct{ rules, messages map[string]bool }

func expressionsOf(s *internal.CustomResourceDefinitionSpec) *expressions {
	e := &expressions{rules: map[string]bool{}, messages: map[string]bool{}}
	anySchema(s, func(s *internal.JSONSchemaProps) bool {
		for i := range s.XValidations {
			e.rules[s.XValidations[i].Rule] = true
			if message := s.XValidations[i].MessageExpression; message != "" {
				e.messages[message] = true
			}
		}
		return false
	})
	return e
}

// RuleEnv returns the environment that a rule is compiled in.
func (e *expressions) RuleEnv(set *environment.EnvSet, expression string) *celgo.Env {
	if e != nil && e.rules[expression] {
		return set.StoredExpressionsEnv()
	}
	return set.NewExpressionsEnv()
}

// MessageExpressionEnv returns the environment that a message's expression is compiled in.
func (e *expressions) MessageExpressionEnv(set *environment.EnvSet, expression string) *celgo.Env {
	if e != nil && e.messages[expression] {
		return set.StoredExpressionsEnv()
	}
	return set.NewExpressionsEnv()
}
