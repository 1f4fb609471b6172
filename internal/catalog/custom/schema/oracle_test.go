package schema

import (
	"context"
	"slices"
	"sort"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/warning"
)

// oracle does with upstream's libraries alone what a Schema does.
type oracle struct {
	structural *structuralschema.Structural
	object     validation.SchemaValidator
	status     validation.SchemaValidator
	cel        *schemacel.Validator
}

// newOracle returns the oracle of a definition's version, nil if its schema is not structural, or upstream panics on it: a fieldPath below
// additionalProperties without a schema does that.
func newOracle(t testing.TB, crd *apiextensionsv1.CustomResourceDefinition) (o *oracle) {
	t.Helper()
	defer func() {
		if recover() != nil {
			o = nil
		}
	}()
	v := crd.Spec.Versions[0]
	props := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, props, nil); err != nil {
		return nil
	}
	structural, err := structuralschema.NewStructural(props)
	if err != nil {
		return nil
	}
	o = &oracle{structural: structural.DeepCopy()}
	if err := defaulting.PruneDefaults(o.structural); err != nil {
		return nil
	}
	if o.object, _, err = validation.NewSchemaValidator(props); err != nil {
		t.Fatal(err)
	}
	if status, ok := props.Properties["status"]; ok && v.Subresources != nil {
		if o.status, _, err = validation.NewSchemaValidator(&status); err != nil {
			t.Fatal(err)
		}
	}
	o.cel = schemacel.NewValidator(o.structural, true, celconfig.PerCallLimit)
	return o
}

func (o *oracle) prune(obj map[string]any) ([]string, error) {
	metadata, found := obj["metadata"]
	unknown := pruning.PruneWithOptions(obj, o.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	defaulting.PruneNonNullableNullsWithoutDefaults(obj, o.structural)
	err, more := objectmeta.CoerceWithOptions(nil, obj, o.structural, false, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return nil, err
	}
	if found {
		obj["metadata"] = metadata
	}
	return append(unknown, more...), nil
}

func (o *oracle) validate(obj, old map[string]any, isStatus bool) (errs, warnings []string) {
	ctx := context.Background()
	recorder := &recordedWarnings{}
	var all field.ErrorList
	var options []schemacel.Option
	var before any
	switch {
	case old == nil:
		all = validation.ValidateCustomResource(nil, obj, o.object)
	default:
		before = old
		correlated := common.NewCorrelatedObject(obj, old, &model.Structural{Structural: o.structural})
		options = append(options, schemacel.WithRatcheting(correlated))
		if !isStatus {
			all = validation.ValidateCustomResourceUpdate(nil, obj, old, o.object, validation.WithRatcheting(correlated))
		} else if status, ok := obj["status"]; ok && o.status != nil {
			all = validation.ValidateCustomResourceUpdate(field.NewPath("status"), status, old["status"], o.status,
				validation.WithRatcheting(correlated.Key("status")))
		}
	}
	if !isStatus {
		all = append(all, objectmeta.Validate(ctx, nil, obj, o.structural, false)...)
	}
	if old == nil || len(listtype.ValidateListSetsAndMaps(nil, o.structural, old)) == 0 {
		all = append(all, listtype.ValidateListSetsAndMaps(nil, o.structural, obj)...)
	}
	if o.cel != nil {
		if blocksRules(all) {
			all = append(all, field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"))
		} else {
			more, _ := o.cel.Validate(warning.WithWarningRecorder(ctx, recorder), nil, o.structural, obj, before, celconfig.RuntimeCELCostBudget, options...)
			all = append(all, more...)
		}
	}
	return sortedTexts(all), sorted(recorder.texts)
}

func sortedTexts(errs field.ErrorList) []string {
	var lines []string
	for _, err := range errs {
		lines = append(lines, selfTypes.ReplaceAllString(err.Error(), "selfType"))
	}
	return sorted(lines)
}

func sorted(lines []string) []string {
	lines = slices.Clone(lines)
	sort.Strings(lines)
	return lines
}
