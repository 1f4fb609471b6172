package schema

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/ptr"
)

// dice makes schemas and objects of a fuzzer's bytes. When they are used up it always rolls 0.
type dice struct{ bytes []byte }

func (d *dice) roll(n int) int {
	if len(d.bytes) == 0 {
		return 0
	}
	b := d.bytes[0]
	d.bytes = d.bytes[1:]
	return int(b) % n
}

func (d *dice) oneIn(n int) bool { return d.roll(n) == n-1 }

func pick[T any](d *dice, from ...T) T { return from[d.roll(len(from))] }

var names = []string{"a", "b", "c", "d", "e"}

// schema returns a schema that is structural most of the time.
func (d *dice) schema(depth int) apiextensionsv1.JSONSchemaProps {
	kinds := []string{"string", "integer", "number", "boolean", "object", "array", "map", "intOrString", "preserved", "embedded"}
	if depth == 0 {
		kinds = kinds[:4]
	}
	s := apiextensionsv1.JSONSchemaProps{}
	switch kind := kinds[d.roll(len(kinds))]; kind {
	case "intOrString":
		s.XIntOrString = true
	case "preserved":
		s.XPreserveUnknownFields = ptr.To(true)
		if d.oneIn(2) {
			s.Type = "object"
			s.Properties = d.properties(depth-1, 2)
		}
	case "embedded":
		s.Type, s.XEmbeddedResource = "object", true
		if d.oneIn(2) {
			s.XPreserveUnknownFields = ptr.To(true)
		}
		s.Properties = d.properties(depth-1, 2)
		if d.oneIn(3) {
			s.Properties["metadata"] = apiextensionsv1.JSONSchemaProps{Type: "object"}
		}
	case "object":
		s.Type = "object"
		s.Properties = d.properties(depth-1, 5)
		if d.oneIn(4) {
			s.XMapType = ptr.To(pick(d, "granular", "atomic"))
		}
	case "map":
		s.Type = "object"
		if d.oneIn(5) {
			s.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true}
		} else {
			s.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: ptr.To(d.schema(depth - 1))}
		}
	case "array":
		s.Type = "array"
		items := d.schema(depth - 1)
		if d.oneIn(2) {
			s.XListType = ptr.To(pick(d, "atomic", "set", "map", "map"))
			if *s.XListType == "map" {
				items.Type = "object"
				items.XIntOrString, items.XPreserveUnknownFields = false, nil
				items.Items, items.AdditionalProperties, items.XListType, items.XListMapKeys = nil, nil, nil, nil
				items.Properties = d.properties(0, 3)
				s.XListMapKeys = names[:1+d.roll(2)]
			}
		}
		s.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &items}
	default:
		s.Type = kind
	}
	d.values(&s, true)
	if d.oneIn(4) {
		s.Nullable = true
	}
	if d.oneIn(4) {
		s.Default = &apiextensionsv1.JSON{Raw: encode(d.value(&s, 3))}
	}
	if d.oneIn(3) {
		s.XValidations = d.rules()
	}
	return s
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func (d *dice) properties(depth, most int) map[string]apiextensionsv1.JSONSchemaProps {
	depth = max(depth, 0)
	properties := map[string]apiextensionsv1.JSONSchemaProps{}
	for i := range d.roll(most) + 1 {
		properties[names[i]] = d.schema(depth)
	}
	return properties
}

// values adds value validations.
func (d *dice) values(s *apiextensionsv1.JSONSchemaProps, nest bool) {
	for range d.roll(4) {
		switch d.roll(16) {
		case 0:
			s.Minimum, s.ExclusiveMinimum = ptr.To(pick(d, 0, 1, -3, 1.5, 1e21)), d.oneIn(3)
		case 1:
			s.Maximum, s.ExclusiveMaximum = ptr.To(pick(d, 3, 10, 1, 2.5)), d.oneIn(3)
		case 2:
			s.MultipleOf = ptr.To(pick(d, 2, 3, 0.5))
		case 3:
			s.MinLength = ptr.To(int64(d.roll(3)))
		case 4:
			s.MaxLength = ptr.To(int64(d.roll(6)))
		case 5:
			s.Pattern = pick(d, "^a", "[0-9]+", "b$")
		case 6:
			s.Format = pick(d, "int32", "int64", "float", "double", "date-time", "date", "duration", "byte", "uuid", "ipv4", "k8s-short-name", "nonsense", "email")
		case 7:
			s.MinItems = ptr.To(int64(d.roll(3)))
		case 8:
			s.MaxItems = ptr.To(int64(d.roll(4)))
		case 9:
			s.MinProperties = ptr.To(int64(d.roll(3)))
		case 10:
			s.MaxProperties = ptr.To(int64(d.roll(4)))
		case 11:
			s.Required = names[:d.roll(3)]
		case 12:
			for range d.roll(3) + 1 {
				s.Enum = append(s.Enum, apiextensionsv1.JSON{Raw: encode(d.scalar())})
			}
		default:
			if nest {
				d.combine(s)
			}
		}
	}
}

func (d *dice) combine(s *apiextensionsv1.JSONSchemaProps) {
	var subs []apiextensionsv1.JSONSchemaProps
	for range d.roll(3) + 1 {
		sub := apiextensionsv1.JSONSchemaProps{}
		d.values(&sub, false)
		if len(s.Properties) > 0 && d.oneIn(2) {
			property := apiextensionsv1.JSONSchemaProps{}
			d.values(&property, false)
			sub.Properties = map[string]apiextensionsv1.JSONSchemaProps{"a": property}
		}
		subs = append(subs, sub)
	}
	switch d.roll(4) {
	case 0:
		s.AnyOf = subs
	case 1:
		s.OneOf = subs
	case 2:
		if d.oneIn(2) {
			subs[0].XValidations = d.rules()
		}
		s.AllOf = subs
	case 3:
		s.Not = &subs[0]
	}
}

func (d *dice) rules() apiextensionsv1.ValidationRules {
	var rules apiextensionsv1.ValidationRules
	for range d.roll(2) + 1 {
		rule := apiextensionsv1.ValidationRule{Rule: pick(d, "self == oldSelf", "self > 1", "has(self.a) && self.a != 'a'", "size(self) < 3", "self.all(x, x == x)",
			"false", "true", "self.a == oldSelf.a", "self != 'a'", "oldSelf.hasValue() && self == oldSelf.value()", "self.startsWith('a')", "  ", "self.exists(k, self[k] == 1)")}
		if d.oneIn(3) {
			rule.Message = pick(d, "message", " spaced ")
		}
		if d.oneIn(3) {
			rule.MessageExpression = pick(d, "'value ' + string(self)", "'  '", "'a\\nb'", "string(oldSelf)", "1", "'constant'")
		}
		if d.oneIn(3) {
			rule.Reason = ptr.To(pick(d, apiextensionsv1.FieldValueForbidden, apiextensionsv1.FieldValueRequired, apiextensionsv1.FieldValueDuplicate, apiextensionsv1.FieldValueInvalid))
		}
		if d.oneIn(3) {
			rule.FieldPath = pick(d, ".a", ".b.c", "['a']")
		}
		if d.oneIn(3) {
			rule.OptionalOldSelf = ptr.To(true)
		}
		rules = append(rules, rule)
	}
	return rules
}

func (d *dice) scalar() any {
	switch d.roll(6) {
	case 0:
		return pick(d, "a", "b", "ab", "", "12", "2020-01-01", "1.2.3.4", "1h", "aé", "YQ==")
	case 1:
		return int64(d.roll(12) - 3)
	case 2:
		return pick(d, 1.5, 1e10, -0.5, 2e38*2, 3.0)
	case 3:
		return d.oneIn(2)
	case 4:
		return nil
	}
	return pick(d, int64(1)<<40, -1<<35)
}

// value returns a value that often fits the schema.
func (d *dice) value(s *apiextensionsv1.JSONSchemaProps, depth int) any {
	if s == nil || d.oneIn(8) || depth == 0 {
		return d.anything(depth)
	}
	switch s.Type {
	case "string":
		if len(s.Enum) > 0 && d.oneIn(2) {
			var v any
			if json.Unmarshal(s.Enum[0].Raw, &v) == nil {
				return v
			}
		}
		return pick(d, "a", "b", "ab", "a12", "1h", "12", "2020-01-01T00:00:00Z")
	case "integer":
		return int64(d.roll(8) - 1)
	case "number":
		return pick[any](d, int64(2), 1.5, int64(7), 2.25)
	case "boolean":
		return d.oneIn(2)
	case "array":
		list := []any{}
		for range d.roll(4) {
			list = append(list, d.value(s.Items.Schema, depth-1))
		}
		return list
	case "object":
		return d.objectOf(s, depth)
	}
	if s.XIntOrString {
		return pick[any](d, int64(1), "a", "50%")
	}
	return d.anything(depth)
}

func (d *dice) objectOf(s *apiextensionsv1.JSONSchemaProps, depth int) map[string]any {
	m := map[string]any{}
	if s.XEmbeddedResource && !d.oneIn(5) {
		m["apiVersion"], m["kind"] = pick[any](d, "v1", "a/b", "a/b/c", "", int64(1)), pick[any](d, "Pod", "", "a b", nil)
		m["metadata"] = pick[any](d, map[string]any{"name": "a"}, map[string]any{"name": "A_b", "unknown": "x"}, map[string]any{"labels": map[string]any{"a": "b"}},
			map[string]any{"labels": "no"}, nil, "text")
	}
	for _, name := range names {
		if property, ok := s.Properties[name]; ok && !d.oneIn(4) {
			m[name] = d.value(&property, depth-1)
		}
	}
	if s.AdditionalProperties != nil {
		for i := range d.roll(3) {
			m[fmt.Sprint("k", i)] = d.value(s.AdditionalProperties.Schema, depth-1)
		}
	}
	if d.oneIn(4) {
		m[pick(d, "x", "y", "metadata", "kind")] = d.anything(depth - 1)
	}
	return m
}

func (d *dice) anything(depth int) any {
	if depth <= 0 {
		return d.scalar()
	}
	switch d.roll(4) {
	case 0:
		m := map[string]any{}
		for range d.roll(4) {
			m[pick(d, "a", "b", "c", "x", "kind")] = d.anything(depth - 1)
		}
		return m
	case 1:
		var list []any
		for range d.roll(4) {
			list = append(list, d.anything(depth-1))
		}
		return list
	}
	return d.scalar()
}

// custom returns an object of the kind Widget.
func (d *dice) custom(s *apiextensionsv1.JSONSchemaProps) map[string]any {
	obj := map[string]any{}
	for _, name := range []string{"spec", "status"} {
		if property, ok := s.Properties[name]; ok && !d.oneIn(6) {
			obj[name] = d.value(&property, 5)
		}
	}
	if d.oneIn(4) {
		obj["unknown"] = d.anything(2)
	}
	return complete(obj)
}

// changed returns a copy of an object with another spec or status, or with both the same.
func (d *dice) changed(s *apiextensionsv1.JSONSchemaProps, obj map[string]any) map[string]any {
	changed := runtime.DeepCopyJSON(obj)
	switch d.roll(4) {
	case 0:
		return d.custom(s)
	case 1:
		changed["status"] = d.custom(s)["status"]
	case 2:
		for _, name := range []string{"spec", "status"} {
			if fields, ok := changed[name].(map[string]any); ok {
				fields[pick(d, names...)] = d.anything(2)
			}
		}
	}
	return changed
}

func complete(obj map[string]any) map[string]any {
	obj["apiVersion"], obj["kind"], obj["metadata"] = "example.com/v1", "Widget", map[string]any{"name": "a"}
	return obj
}
