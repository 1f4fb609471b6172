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

// Part is one part of an object, found at a path, and what is wrong with it so far. Methods that take a name speak of
// the field of that name inside the part; an empty name means the part itself.
type Part struct {
	path   *field.Path
	parent *Part // the path is built from it if path is nil
	name   string
	index  int // of the item in the list called name, if not negative

	later bool
	found *found // shared by all parts of an object
}

type found struct{ errors, late field.ErrorList }

// At starts to check the part of an object at a path.
func At(path *field.Path) *Part {
	return &Part{path: path, index: -1, found: &found{}}
}

// Child is a part within the part. What is wrong with it is added to the same list.
func (p *Part) Child(name string) *Part {
	return &Part{parent: p, name: name, index: -1, found: p.found, later: p.later}
}

// Item is one item of a list within the part.
func (p *Part) Item(list string, index int) *Part {
	return &Part{parent: p, name: list, index: index, found: p.found, later: p.later}
}

// Later is the same part, whose errors are told after all others. Upstream does so with rules that are declared on the API
// types and not written in code.
func (p *Part) Later() *Part {
	q := *p
	q.later = true
	return &q
}

// Errors is everything found wrong so far, by this part and all others of the same object.
func (p *Part) Errors() field.ErrorList {
	return append(slices.Clip(p.found.errors), p.found.late...)
}

// Path of a field of the part, or of the part itself.
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

// Add takes over errors that were found by other means.
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

// NonNegative adds an error for a value below zero.
func (p *Part) NonNegative(name string, value int64) {
	if value < 0 {
		p.Add(validation.ValidateNonnegativeField(value, p.Path(name))...)
	}
}

// NonNegativeIfSet adds an error for a value below zero, if there is one.
func NonNegativeIfSet[I int32 | int64](p *Part, name string, value *I) {
	if value != nil {
		p.NonNegative(name, int64(*value))
	}
}

// AtMost adds an error for a value above another.
func AtMost[I int32 | int64](p *Part, name string, value, limit I, detail string) {
	if value > limit {
		p.Invalid(name, value, detail)
	}
}

// Format adds an error for everything a rule finds wrong with a value. The rules are those of
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

// OneOf adds an error for a value that is not among those supported.
func OneOf[S ~string](p *Part, name string, value S, supported ...S) {
	for _, s := range supported {
		if value == s {
			return
		}
	}
	p.Add(field.NotSupported(p.Path(name), value, supported))
}

// Selector checks the form of a label selector, which may be nil.
func (p *Part) Selector(name string, s *metav1.LabelSelector, opts metav1validation.LabelSelectorValidationOptions) {
	if s == nil || len(s.MatchExpressions) == 0 && PlainLabels(s.MatchLabels) {
		return
	}
	p.Add(metav1validation.ValidateLabelSelector(s, opts, p.Path(name))...)
}

// StrictSelector checks the form of a label selector, the values of its labels included.
func (p *Part) StrictSelector(name string, s *metav1.LabelSelector) {
	p.Selector(name, s, metav1validation.LabelSelectorValidationOptions{})
}

// LongName is the rule of names for kinds whose names upstream checks by declaration: what a name will begin with need only fit into a path.
func LongName(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsDNS1123Subdomain(name)
}
