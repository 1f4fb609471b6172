package schema

import (
	"math"
	"regexp"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/go-openapi/swag"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

// check says quickly whether a value is valid. Its answers are those of kube-openapi's validators, in whose terms it is written: that a value
// is valid is final; everything else is left to them, since they say why. A nil check is never sure.
type check struct {
	types    []string
	format   string
	nullable bool
	enum     []any
	strings  []string // the strings of the enum

	minLength, maxLength *int64
	pattern              *pattern
	stringFormat         bool // the format is one of strings that the registry knows

	number *numberCheck

	minItems, maxItems *int64
	uniqueItems        bool
	items              *check

	minProperties, maxProperties *int64
	required                     []string
	properties                   map[string]*check
	additional                   *check
	closed                       bool // additionalProperties is false

	anyOf, oneOf, allOf []*check
	not                 *check

	plain bool // has neither anyOf, oneOf, allOf nor not
}

// numberCheck has the bounds of a number.
type numberCheck struct {
	minimum, maximum, multipleOf       *float64
	exclusiveMinimum, exclusiveMaximum bool
	int32, float32                     bool // formats that narrow the range
	integer                            bool
	unknown                            bool // a bound is outside the type's range, which makes every value invalid in its own way
}

// newCheck returns the check of a schema, nil if the schema has parts that no check knows, and the number of schemas in it.
func newCheck(s *spec.Schema) (c *check, schemas int) {
	b := checkBuilder{patterns: map[string]*pattern{}, plain: map[plainKey]*check{}}
	c = b.build(s)
	if b.unknown {
		c = nil
	}
	return c, b.schemas
}

// checkBuilder builds the checks of a schema. Most fields say no more than their type, and patterns repeat, so both are shared.
type checkBuilder struct {
	patterns map[string]*pattern
	plain    map[plainKey]*check
	schemas  int
	unknown  bool
}

// plainKey is a schema of a scalar that has nothing but a type, perhaps with a format, and may be nullable.
type plainKey struct {
	typeName, format string
	nullable         bool
}

// pattern is a regular expression that is compiled when the first value is matched.
type pattern struct {
	source string
	once   sync.Once
	regexp *regexp.Regexp // nil if it does not compile
}

// match says whether a value matches. Nothing matches an expression that does not compile.
func (p *pattern) match(value string) bool {
	p.once.Do(func() { p.regexp, _ = regexp.Compile(p.source) })
	return p.regexp != nil && p.regexp.MatchString(value)
}

func (b *checkBuilder) build(s *spec.Schema) *check {
	if s == nil {
		return nil
	}
	b.schemas++
	if s.Ref.String() != "" || len(s.PatternProperties) > 0 || len(s.Dependencies) > 0 || s.AdditionalItems != nil ||
		s.Items != nil && len(s.Items.Schemas) > 0 {
		b.unknown = true
		return nil
	}
	if key, ok := plainSchema(s); ok {
		if shared, ok := b.plain[key]; ok {
			return shared
		}
		c := b.newCheck(s)
		b.plain[key] = c
		return c
	}
	c := b.newCheck(s)
	if s.Items != nil {
		c.items = b.build(s.Items.Schema)
	}
	if a := s.AdditionalProperties; a != nil {
		c.closed = !a.Allows
		c.additional = b.build(a.Schema)
	}
	if len(s.Properties) > 0 {
		c.properties = make(map[string]*check, len(s.Properties))
		for name := range s.Properties {
			property := s.Properties[name]
			c.properties[name] = b.build(&property)
		}
	}
	return c
}

// newCheck returns the check of what a schema says of a value itself.
func (b *checkBuilder) newCheck(s *spec.Schema) *check {
	c := &check{
		types: s.Type, format: s.Format, nullable: s.Nullable, enum: s.Enum,
		minLength: s.MinLength, maxLength: s.MaxLength, pattern: b.pattern(s.Pattern),
		stringFormat: s.Format != "" && strfmt.Default.ContainsName(s.Format),
		number:       newNumberCheck(s),
		minItems:     s.MinItems, maxItems: s.MaxItems, uniqueItems: s.UniqueItems,
		minProperties: s.MinProperties, maxProperties: s.MaxProperties, required: s.Required,
		anyOf: b.all(s.AnyOf), oneOf: b.all(s.OneOf), allOf: b.all(s.AllOf), not: b.build(s.Not),
	}
	c.plain = len(c.anyOf)+len(c.oneOf)+len(c.allOf) == 0 && c.not == nil
	for _, value := range s.Enum {
		if text, ok := value.(string); ok {
			c.strings = append(c.strings, text)
		}
	}
	return c
}

func plainSchema(s *spec.Schema) (key plainKey, ok bool) {
	if len(s.Type) != 1 || s.Items != nil || s.AdditionalProperties != nil || len(s.Properties) > 0 || len(s.Required) > 0 || len(s.Enum) > 0 ||
		s.Pattern != "" || s.UniqueItems || len(s.AnyOf)+len(s.OneOf)+len(s.AllOf) > 0 || s.Not != nil || s.Minimum != nil || s.Maximum != nil ||
		s.MultipleOf != nil || s.MinLength != nil || s.MaxLength != nil || s.MinItems != nil || s.MaxItems != nil || s.MinProperties != nil || s.MaxProperties != nil {
		return key, false
	}
	return plainKey{s.Type[0], s.Format, s.Nullable}, true
}

func (b *checkBuilder) all(schemas []spec.Schema) []*check {
	var checks []*check
	for i := range schemas {
		checks = append(checks, b.build(&schemas[i]))
	}
	return checks
}

func (b *checkBuilder) pattern(source string) *pattern {
	if source == "" {
		return nil
	}
	p, ok := b.patterns[source]
	if !ok {
		p = &pattern{source: source}
		b.patterns[source] = p
	}
	return p
}

func newNumberCheck(s *spec.Schema) *numberCheck {
	n := &numberCheck{
		minimum: s.Minimum, maximum: s.Maximum, multipleOf: s.MultipleOf,
		exclusiveMinimum: s.ExclusiveMinimum, exclusiveMaximum: s.ExclusiveMaximum,
	}
	typeName := ""
	if len(s.Type) == 1 && (s.Type[0] == "integer" || s.Type[0] == "number") {
		typeName = s.Type[0]
		n.integer = typeName == "integer"
		n.int32 = n.integer && s.Format == "int32"
		n.float32 = !n.integer && s.Format == "float"
	}
	for _, bound := range []*float64{n.minimum, n.maximum, n.multipleOf} {
		if bound != nil && validate.IsValueValidAgainstRange(*bound, typeName, s.Format, "", "") != nil {
			n.unknown = true
		}
	}
	if n.minimum == nil && n.maximum == nil && n.multipleOf == nil && typeName == "" {
		return nil
	}
	return n
}

// valid says whether the value is surely valid.
func (c *check) valid(value any) bool {
	if c == nil {
		return false
	}
	r := checkRun{}
	return r.valid(c, value) && !r.unsure
}

// checkRun is one run of a check. When it is not sure of a part, the answer to the whole is void, since a part may stand below "not".
type checkRun struct {
	unsure bool
}

func (r *checkRun) valid(c *check, value any) bool {
	if value == nil {
		return (len(c.types) == 0 || c.nullable || slices.Contains(c.types, "null")) && len(c.enum) == 0
	}
	if !c.typeFits(value) || !c.plain && !r.combined(c, value) {
		return false
	}
	switch value := value.(type) {
	case string:
		if !c.textFits(value) {
			return false
		}
	case int64:
		if c.number != nil && !r.integer(c.number, value) {
			return false
		}
	case float64:
		if c.number != nil && !r.float(c.number, value) {
			return false
		}
	case []any:
		if !r.list(c, value) {
			return false
		}
	case map[string]any:
		if !r.object(c, value) {
			return false
		}
	case bool:
	default:
		r.unsure = true
		return false
	}
	return c.enumHas(value)
}

func (c *check) hasType(name string) bool {
	for _, t := range c.types {
		if t == name {
			return true
		}
	}
	return false
}

// typeFits judges the type. A format changes the rules: a string or list fits any type with a format that is not one of numbers.
func (c *check) typeFits(value any) bool {
	if len(c.types) == 0 && c.format == "" {
		return true
	}
	numeric := c.hasType("number") || c.hasType("integer")
	switch value := value.(type) {
	case string:
		return !numeric && c.format != "" || c.hasType("string")
	case []any:
		return !numeric && c.format != "" || c.hasType("array")
	case bool:
		return c.hasType("boolean")
	case map[string]any:
		return c.hasType("object")
	case int64:
		return numeric
	case float64:
		return c.hasType("number") || c.hasType("integer") && swag.IsFloat64AJSONInteger(value)
	}
	return true // judged by valid
}

func (r *checkRun) combined(c *check, value any) bool {
	if len(c.anyOf) > 0 && !slices.ContainsFunc(c.anyOf, func(sub *check) bool { return r.valid(sub, value) }) {
		return false
	}
	if len(c.oneOf) > 0 {
		matches := 0
		for _, sub := range c.oneOf {
			if r.valid(sub, value) {
				matches++
			}
		}
		if matches != 1 {
			return false
		}
	}
	for _, sub := range c.allOf {
		if !r.valid(sub, value) {
			return false
		}
	}
	return c.not == nil || !r.valid(c.not, value)
}

func (c *check) enumHas(value any) bool {
	if len(c.enum) == 0 {
		return true
	}
	if text, ok := value.(string); ok && slices.Contains(c.strings, text) {
		return true
	}
	return validate.Enum("", "", value, c.enum) == nil
}

func (c *check) textFits(value string) bool {
	if c.maxLength != nil || c.minLength != nil {
		length := int64(utf8.RuneCountInString(value))
		if c.maxLength != nil && length > *c.maxLength || c.minLength != nil && length < *c.minLength {
			return false
		}
	}
	return (c.pattern == nil || c.pattern.match(value)) && (!c.stringFormat || strfmt.Default.Validates(c.format, value))
}

func (r *checkRun) integer(n *numberCheck, value int64) bool {
	if n.unknown {
		r.unsure = true
		return false
	}
	if n.int32 && (value < math.MinInt32 || value > math.MaxInt32) {
		return false
	}
	if n.minimum != nil && (value < int64(*n.minimum) || n.exclusiveMinimum && value == int64(*n.minimum)) {
		return false
	}
	if n.maximum != nil && (value > int64(*n.maximum) || n.exclusiveMaximum && value == int64(*n.maximum)) {
		return false
	}
	return n.multipleOf == nil || validate.MultipleOfNativeType("", "", value, *n.multipleOf) == nil
}

func (r *checkRun) float(n *numberCheck, value float64) bool {
	if n.unknown || n.integer || n.float32 && math.Abs(value) > math.MaxFloat32 {
		r.unsure = true
		return false
	}
	if n.minimum != nil && (value < *n.minimum || n.exclusiveMinimum && value == *n.minimum) {
		return false
	}
	if n.maximum != nil && (value > *n.maximum || n.exclusiveMaximum && value == *n.maximum) {
		return false
	}
	return n.multipleOf == nil || validate.MultipleOfNativeType("", "", value, *n.multipleOf) == nil
}

func (r *checkRun) list(c *check, values []any) bool {
	if c.minItems != nil && int64(len(values)) < *c.minItems || c.maxItems != nil && int64(len(values)) > *c.maxItems {
		return false
	}
	if c.items != nil {
		for _, value := range values {
			if !r.valid(c.items, value) {
				return false
			}
		}
	}
	return !c.uniqueItems || validate.UniqueItems("", "", values) == nil
}

func (r *checkRun) object(c *check, object map[string]any) bool {
	if c.minProperties != nil && int64(len(object)) < *c.minProperties || c.maxProperties != nil && int64(len(object)) > *c.maxProperties {
		return false
	}
	for _, name := range c.required {
		if _, ok := object[name]; !ok {
			return false
		}
	}
	if c.properties == nil && c.additional == nil && !c.closed {
		return true
	}
	for name, value := range object {
		property, ok := c.properties[name]
		switch {
		case ok:
		case c.closed:
			return false
		case c.additional != nil:
			property = c.additional
		default:
			continue
		}
		if !r.valid(property, value) {
			return false
		}
	}
	return true
}
