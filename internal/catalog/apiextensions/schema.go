package apiextensions

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"

	internal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	structuraldefaulting "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	apiservervalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/environment"

	"skiff/internal/catalog/check"
)

// expressionEnvironment has the CEL libraries that rules may use. It costs milliseconds and is built when first needed.
var expressionEnvironment = sync.OnceValue(func() *environment.EnvSet {
	return environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
})

// schema is the schema of one version, or of all that have the same.
type schema struct {
	*validator
	version    string
	structural *structuralschema.Structural // nil if the schema has no such form
	err        error                        // why it has none
}

func (v *validator) newSchema(s *internal.CustomResourceValidation, version string) *schema {
	checked := &schema{validator: v, version: version}
	if s != nil {
		checked.structural, checked.err = structuralschema.NewStructural(s.OpenAPIV3Schema)
	}
	return checked
}

// validate validates the schema at its part. status says whether a version that has it has a status subresource.
func (s *schema) validate(p *check.Part, value *internal.CustomResourceValidation, status bool) {
	if value == nil {
		return
	}
	found := check.At(p.Path())
	if value.OpenAPIV3Schema != nil {
		s.validateRoot(found, value.OpenAPIV3Schema, status)
	}
	if len(found.Errors()) == 0 {
		if _, _, err := apiservervalidation.NewSchemaValidator(value.OpenAPIV3Schema); err != nil {
			found.Invalid("", "", fmt.Sprintf("error building validator: %v", err))
		}
	}
	p.Add(bounded(found.Errors())...)
}

// longestReport bounds the text of the errors of one schema. Each has the path of what is wrong, so that a deep schema that is wrong everywhere
// would be answered with many times its own size.
const longestReport = 4 << 20

// bounded returns the first errors, up to the longest report.
func bounded(errs field.ErrorList) field.ErrorList {
	size := 0
	for i, err := range errs {
		if size += len(err.Field) + len(err.Detail); size > longestReport {
			return errs[:max(i, 1)]
		}
	}
	return errs
}

func (s *schema) validateRoot(p *check.Part, value *internal.JSONSchemaProps, status bool) {
	const name = "openAPIV3Schema"
	if status {
		validateForStatus(p, value)
	}
	if value.Nullable {
		p.Forbidden("openAPIV3Schema.nullable", "nullable cannot be true at the root")
	}
	walk := &walker{schema: s}
	root := place{path: p.Path(name), root: true, structural: s.structural}
	if s.validator.structural && s.err == nil && s.validateStructural(p, value) {
		root.scope = rootScope(value, s.structural)
	}
	walk.visit(value, root)
	p.Add(walk.schemaErrors...)
	p.Add(walk.expressionErrors...)
	// What cannot be converted is mostly reported by name above.
	if s.validator.structural && s.err != nil && len(p.Errors()) == 0 {
		p.Invalid(name, "", s.err.Error())
	}
	walk.total.validate(p, name)
}

// validateStructural validates the structural form of a schema and its defaults, and reports whether they are valid.
func (s *schema) validateStructural(p *check.Part, value *internal.JSONSchemaProps) bool {
	const name = "openAPIV3Schema"
	if errs := structuralschema.ValidateStructural(p.Path(name), s.structural); len(errs) > 0 {
		p.Add(errs...)
		return false
	}
	if !hasDefaults(value) {
		return true
	}
	errs, err := s.validateDefaults(p.Path(name), true)
	if len(errs) > 0 && s.lenient.unprunedDefaults() {
		errs, err = s.validateDefaults(p.Path(name), false)
	}
	if err != nil {
		p.Invalid(name, "", err.Error())
	}
	p.Add(errs...)
	return err == nil && len(errs) == 0
}

// validateDefaults validates the defaults of a structural schema; pruned says whether they may have no fields that the schema does not know. What the
// rules that judge them may cost is bounded, so that there is no deadline.
func (s *schema) validateDefaults(path *field.Path, pruned bool) (field.ErrorList, error) {
	return structuraldefaulting.ValidateDefaults(context.Background(), path, s.structural, true, pruned)
}

// statusRoot are the fields of a schema that may be set at the root if there is a status subresource: its own schema is taken from
// properties, and everything else at the root does not apply to it.
var statusRoot = []string{"Description", "Type", "Format", "Title", "Maximum", "ExclusiveMaximum", "Minimum", "ExclusiveMinimum", "MaxLength", "MinLength",
	"Pattern", "MaxItems", "MinItems", "UniqueItems", "MultipleOf", "Required", "Items", "Properties", "ExternalDocs", "Example",
	"XPreserveUnknownFields", "XValidations"}

// validateForStatus reports the first field that may not be set at the root if there is a status subresource.
func validateForStatus(p *check.Part, s *internal.JSONSchemaProps) {
	value := reflect.ValueOf(s).Elem()
	for i := range value.NumField() {
		name := value.Type().Field(i).Name
		switch {
		case value.Field(i).IsZero():
		case name == "Type" && s.Type != "object":
			p.Invalid("openAPIV3Schema.type", s.Type, `only "object" is allowed as the type at the root of the schema if the status subresource is enabled`)
			return
		case !slices.Contains(statusRoot, name):
			p.Invalid("openAPIV3Schema", *s, fmt.Sprintf("only %v fields are allowed at the root of the schema if the status subresource is enabled", statusRoot))
			return
		}
	}
}
