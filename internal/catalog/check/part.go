package check

import (
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Part is one part of an object, at a path, with the errors found so far. Methods that take a name apply to
// the field of that name inside the part; an empty name means the part itself.
type Part struct {
	path   *field.Path
	parent *Part // the path is built from it if path is nil
	name   string
	index  int // the index of the item in the list called name; negative if the part is no item

	later bool
	found *found // the errors, shared by all parts of an object
}

type found struct{ errors, late field.ErrorList }

// At returns a new part of an object at a path, without errors.
func At(path *field.Path) *Part {
	return &Part{path: path, index: -1, found: &found{}}
}

// Child returns the part of a field. Its errors are added to the same list.
func (p *Part) Child(name string) *Part {
	return &Part{parent: p, name: name, index: -1, found: p.found, later: p.later}
}

// Item returns the part of an item of a list. Its errors are added to the same list.
func (p *Part) Item(list string, index int) *Part {
	return &Part{parent: p, name: list, index: index, found: p.found, later: p.later}
}

// Later returns the same part, whose errors are reported after all others. Upstream does so for rules that are declared on the API
// types and not written in code.
func (p *Part) Later() *Part {
	q := *p
	q.later = true
	return &q
}

// Errors returns the errors found so far, of this part and all others of the same object.
func (p *Part) Errors() field.ErrorList {
	return append(slices.Clip(p.found.errors), p.found.late...)
}

// Path returns the path of a field of the part, or of the part itself.
func (p *Part) Path(names ...string) *field.Path {
	if p.path == nil && p.parent != nil {
		p.path = p.parent.Path(p.name)
		if p.index >= 0 {
			p.path = p.path.Index(p.index)
		}
	}
	path := p.path
	for _, name := range names {
		switch {
		case name == "":
		case path == nil:
			path = field.NewPath(name)
		default:
			path = path.Child(name)
		}
	}
	return path
}

// Add adds errors.
func (p *Part) Add(errs ...*field.Error) {
	if p.later {
		p.found.late = append(p.found.late, errs...)
	} else {
		p.found.errors = append(p.found.errors, errs...)
	}
}

func (p *Part) Invalid(name string, value any, detail string) {
	p.Add(field.Invalid(p.Path(name), value, detail))
}

func (p *Part) Forbidden(name, detail string) { p.Add(field.Forbidden(p.Path(name), detail)) }
func (p *Part) Required(name, detail string)  { p.Add(field.Required(p.Path(name), detail)) }

// Present adds an error unless the condition holds.
func (p *Part) Present(name string, present bool, detail string) {
	if !present {
		p.Required(name, detail)
	}
}

// NonNegative adds an error if a value is below zero.
func (p *Part) NonNegative(name string, value int64) {
	if value < 0 {
		p.Add(validation.ValidateNonnegativeField(value, p.Path(name))...)
	}
}

// NonNegativeIfSet adds an error if a value is set and below zero.
func NonNegativeIfSet[I int32 | int64](p *Part, name string, value *I) {
	if value != nil {
		p.NonNegative(name, int64(*value))
	}
}

// AtMost adds an error if a value is above a limit.
func AtMost[I int32 | int64](p *Part, name string, value, limit I, detail string) {
	if value > limit {
		p.Invalid(name, value, detail)
	}
}

// Format adds an error for each message that a rule returns for a value. The rules are those of
// k8s.io/apimachinery/pkg/util/validation, such as IsDNS1123Label.
func (p *Part) Format(name, value string, rule func(string) []string) {
	for _, msg := range rule(value) {
		p.Invalid(name, value, msg)
	}
}

// Immutable adds an error if a field changed.
func (p *Part) Immutable(name string, new, old any) {
	if !apiequality.Semantic.DeepEqual(new, old) {
		p.Add(field.Invalid(p.Path(name), internal(new), validation.FieldImmutableErrorMsg).WithOrigin("immutable"))
	}
}

// GeneratedName adds errors for a metadata.generateName that a name rule refuses, on update: of kinds whose updates upstream validates like
// new objects. The server itself applies the rule on create only.
func (p *Part) GeneratedName(obj metav1.Object, rule func(name string, prefix bool) []string) {
	if name := obj.GetGenerateName(); name != "" {
		for _, msg := range rule(name, true) {
			p.Invalid("generateName", name, msg)
		}
	}
}

// OneOf adds an error if a value is not among those supported.
func OneOf[S ~string](p *Part, name string, value S, supported ...S) {
	for _, s := range supported {
		if value == s {
			return
		}
	}
	p.Add(field.NotSupported(p.Path(name), value, supported))
}

// Selector validates a label selector, which may be nil.
func (p *Part) Selector(name string, s *metav1.LabelSelector, opts metav1validation.LabelSelectorValidationOptions) {
	if s == nil || len(s.MatchExpressions) == 0 && PlainLabels(s.MatchLabels) {
		return
	}
	p.Add(metav1validation.ValidateLabelSelector(s, opts, p.Path(name))...)
}

// StrictSelector validates a label selector, including its values.
func (p *Part) StrictSelector(name string, s *metav1.LabelSelector) {
	p.Selector(name, s, metav1validation.LabelSelectorValidationOptions{})
}

// LongName is the name rule for kinds whose names upstream validates by declaration: a prefix for a generated name need only be a valid path segment.
func LongName(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsDNS1123Subdomain(name)
}
