package schema

import (
	"context"
	"fmt"
	"time"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// Validate returns why an object must not be created: values, scale, metadata of embedded resources, list types and CEL rules. Found are
// the errors that were found in its metadata already: rules are not run on an object with certain errors, wherever they are. They are not
// returned again.
func (s *Schema) Validate(ctx context.Context, obj map[string]any, found ...*field.Error) field.ErrorList {
	return s.validate(ctx, &change{obj: obj, found: found})
}

// ValidateUpdate returns why an object must not replace the old one. Errors in values that did not change are ratcheted, if upstream can
// correlate them with the old value. Rules that fail in such values are reported as warnings, to whom catalog.WithWarnings names.
func (s *Schema) ValidateUpdate(ctx context.Context, obj, old map[string]any, found ...*field.Error) field.ErrorList {
	return s.validate(ctx, &change{obj: obj, old: old, found: found})
}

// ValidateStatusUpdate returns why an object, whose status alone can differ from the old one's, must not replace it through the status
// subresource. Only the status is validated against the schema, but all CEL rules run.
func (s *Schema) ValidateStatusUpdate(ctx context.Context, obj, old map[string]any, found ...*field.Error) field.ErrorList {
	return s.validate(ctx, &change{obj: obj, old: old, status: true, found: found})
}

// change is an object that is to be created or to replace an old one.
type change struct {
	obj, old map[string]any // old is nil on create
	status   bool           // only the status can have changed
	found    []*field.Error // errors in metadata
}

func (s *Schema) validate(ctx context.Context, ch *change) field.ErrorList {
	c, err := s.compiled()
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	errs := s.validateKind(ch.obj)
	if len(errs) == 0 {
		errs = append(s.validateValues(c, ch), ch.validateScale(c.scale)...)
	}
	if !ch.status && c.shape != nil && c.shape.hasEmbedded {
		errs = append(errs, objectmeta.Validate(ctx, nil, ch.obj, c.structural, false)...)
	}
	errs = append(errs, s.validateLists(c, ch)...)
	rules, err := s.compiledRules(c)
	switch {
	case err != nil:
		return append(errs, field.InternalError(nil, err))
	case rules == nil:
		return errs
	case blocksRules(ch.found) || blocksRules(errs):
		return append(errs, field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid; "+
			"correct the existing errors to complete validation"))
	}
	return append(errs, rules.run(ctx, ch)...)
}

// Usage is what the CEL rules took for one validation.
type Usage struct {
	Start time.Time // zero if no rules have run
	Took  time.Duration
	Cost  int64
}

type usageKey struct{}

// WithUsage returns a context with which a validation fills in what its rules take.
func WithUsage(ctx context.Context, u *Usage) context.Context {
	return context.WithValue(ctx, usageKey{}, u)
}

// run runs the rules, and fills in the usage that the context has.
func (r *rules) run(ctx context.Context, ch *change) field.ErrorList {
	u, _ := ctx.Value(usageKey{}).(*Usage)
	if u == nil {
		refused, _ := r.validate(ctx, ch, celconfig.RuntimeCELCostBudget)
		return refused
	}
	u.Start = time.Now()
	refused, left := r.validate(ctx, ch, celconfig.RuntimeCELCostBudget)
	u.Took, u.Cost = time.Since(u.Start), celconfig.RuntimeCELCostBudget-max(left, 0)
	return refused
}

// blocksRules says whether an error means that the object may not have the form that CEL rules rely on.
func blocksRules(errs field.ErrorList) bool {
	for _, err := range errs {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return true
		}
	}
	return false
}

func (s *Schema) validateKind(obj map[string]any) field.ErrorList {
	var errs field.ErrorList
	if kind, _ := obj["kind"].(string); kind != s.kind.Kind {
		errs = append(errs, field.Invalid(field.NewPath("kind"), kind, fmt.Sprintf("must be %v", s.kind.Kind)))
	}
	apiVersion := s.kind.Group + "/" + s.kind.Version
	if got, _ := obj["apiVersion"].(string); got != apiVersion {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), got, fmt.Sprintf("must be %v", apiVersion)))
	}
	return errs
}

// validateValues returns the errors of types and values. Upstream's validators run only if the check is not sure that there are none.
func (s *Schema) validateValues(c *compiled, ch *change) field.ErrorList {
	if ch.status {
		return s.validateStatusValues(c, ch)
	}
	if c.check.valid(ch.obj) {
		return nil
	}
	v, err := s.compiledValidators(c)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	if ch.old == nil {
		return validation.ValidateCustomResource(nil, ch.obj, v.object)
	}
	return validation.ValidateCustomResourceUpdate(nil, ch.obj, ch.old, v.object, validation.WithRatcheting(v.correlate(ch)))
}

func (s *Schema) validateStatusValues(c *compiled, ch *change) field.ErrorList {
	status, ok := ch.obj["status"]
	if !ok || !s.hasStatus {
		return nil
	}
	if c.check != nil {
		if check, ok := c.check.properties["status"]; !ok || check.valid(status) {
			return nil
		}
	}
	v, err := s.compiledValidators(c)
	switch {
	case err != nil:
		return field.ErrorList{field.InternalError(nil, err)}
	case v.status == nil:
		return nil
	}
	ratchet := validation.WithRatcheting(v.correlate(ch).Key("status"))
	return validation.ValidateCustomResourceUpdate(field.NewPath("status"), status, ch.old["status"], v.status, ratchet)
}

// validateLists returns the errors of list types. An update is refused only if the old object was valid.
func (s *Schema) validateLists(c *compiled, ch *change) field.ErrorList {
	if uniqueLists(ch.obj, c.shape) {
		return nil
	}
	v, err := s.compiledValidators(c)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	errs := listtype.ValidateListSetsAndMaps(nil, v.structural, ch.obj)
	if len(errs) > 0 && ch.old != nil && len(listtype.ValidateListSetsAndMaps(nil, v.structural, ch.old)) > 0 {
		return nil
	}
	return errs
}

// validators are upstream's, which say what is wrong.
type validators struct {
	object validation.SchemaValidator
	status validation.SchemaValidator // nil unless the version has the status subresource and a schema of the status

	structural *structuralschema.Structural // nil without a structural schema
	values     *valueSchema                 // of the structural schema
}

// correlate pairs the values of an object with the old object's. It is nil without a structural schema: values are then paired by the schema
// that they are validated with.
func (v *validators) correlate(ch *change) *common.CorrelatedObject {
	if v.structural == nil {
		return nil
	}
	return common.NewCorrelatedObject(ch.obj, ch.old, v.values)
}

func (s *Schema) compiledValidators(c *compiled) (*validators, error) {
	p := s.load()
	return p.validators.get(func() (*validators, error) {
		version, err := s.source()
		if err != nil {
			return nil, err
		}
		props, structural, err := s.convert(version)
		if err != nil {
			return nil, err
		}
		v := &validators{structural: structural}
		if structural != nil {
			v.values = newValueSchema(structural)
		}
		if v.object, _, err = validation.NewSchemaValidator(props); err != nil {
			return nil, err
		}
		p.size.Add(int64(validatorsSize * c.schemas))
		if props == nil || !s.hasStatus {
			return v, nil
		}
		if status, ok := props.Properties["status"]; ok {
			v.status, _, err = validation.NewSchemaValidator(&status)
		}
		return v, err
	})
}
