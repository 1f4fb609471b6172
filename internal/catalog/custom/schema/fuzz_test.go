package schema

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
)

// FuzzSchema makes a schema and objects of bytes and compares what a Schema does with them with what upstream's libraries do: pruned fields
// and their paths, defaults, and the errors and warnings of creates, updates and updates of status. Pruning and defaulting twice must be the
// same as once.
func FuzzSchema(f *testing.F) {
	for i := range 200 {
		f.Add(pseudoRandom(i, 600))
	}
	f.Fuzz(func(t *testing.T, bytes []byte) {
		d := &dice{bytes}
		props := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": d.schema(3)}}
		if d.oneIn(2) {
			props.Properties["status"] = d.schema(2)
		}
		if d.oneIn(3) {
			props.XValidations = d.rules()
		}
		crd := withStatus(definition(t, ""))
		crd.Spec.Versions[0].Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &props}
		o := newOracle(t, crd)
		if o == nil {
			return
		}
		c := comparison{t, New(crd, "v1"), o, &props}
		old := c.process(d.custom(&props))
		if old == nil {
			return
		}
		c.validate(old, nil, false)
		if obj := c.process(d.changed(&props, old)); obj != nil {
			c.validate(obj, old, false)
			CopyStatus(obj, old)
			obj["status"] = d.custom(&props)["status"]
			if obj["status"] == nil {
				delete(obj, "status")
			}
			KeepAllButStatus(obj, old)
			c.validate(obj, old, true)
		}
	})
}

type comparison struct {
	t      *testing.T
	schema *Schema
	oracle *oracle
	props  *apiextensionsv1.JSONSchemaProps
}

func (c *comparison) fail(what string, obj, got, want any) {
	c.t.Helper()
	schema, _ := json.Marshal(c.props)
	text, _ := json.Marshal(obj)
	c.t.Fatalf("%s\nschema %s\nobject %s\ngot  %#v\nwant %#v", what, schema, text, got, want)
}

// process prunes and defaults an object, and returns nil if it is refused.
func (c *comparison) process(obj map[string]any) map[string]any {
	t := c.t
	got, want := runtime.DeepCopyJSON(obj), runtime.DeepCopyJSON(obj)
	quiet := runtime.DeepCopyJSON(obj)
	unknown, err := c.schema.Prune(got, true)
	wantUnknown, wantErr := c.oracle.prune(want)
	if (err != nil) != (wantErr != nil) {
		c.fail("prune: error", obj, err, wantErr)
	}
	if err != nil {
		return nil
	}
	if !slices.Equal(unknown, wantUnknown) {
		c.fail("prune: unknown fields", obj, unknown, wantUnknown)
	}
	if !reflect.DeepEqual(got, want) {
		c.fail("prune", obj, got, want)
	}
	if _, err := c.schema.Prune(quiet, false); err != nil || !reflect.DeepEqual(quiet, want) {
		c.fail("prune without report", obj, quiet, want)
	}
	if unknown, err := c.schema.Prune(got, true); err != nil || len(unknown) > 0 || !reflect.DeepEqual(got, want) {
		c.fail("prune again", obj, got, want)
	}
	defaulting.Default(want, c.oracle.structural)
	if err := c.schema.Default(got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		c.fail("default", obj, got, want)
	}
	if err := c.schema.Default(got); err != nil || !reflect.DeepEqual(got, want) {
		c.fail("default again", obj, got, want)
	}
	return got
}

// validate compares errors and warnings. Rules that compare maps may fail at any of several fields, so a difference must last.
func (c *comparison) validate(obj, old map[string]any, isStatus bool) {
	var got, want [2][]string
	for range 30 {
		got = c.errors(obj, old, isStatus)
		errs, warnings := c.oracle.validate(obj, old, isStatus)
		want = [2][]string{errs, warnings}
		if slices.Equal(got[0], want[0]) && slices.Equal(got[1], want[1]) {
			return
		}
	}
	c.fail("validate", []any{obj, old}, got, want)
}

func (c *comparison) errors(obj, old map[string]any, isStatus bool) [2][]string {
	var warnings []string
	ctx := catalog.WithWarnings(context.Background(), func(text string) { warnings = append(warnings, text) })
	var errs field.ErrorList
	switch {
	case old == nil:
		errs = c.schema.Validate(ctx, obj)
	case isStatus:
		errs = c.schema.ValidateStatusUpdate(ctx, obj, old)
	default:
		errs = c.schema.ValidateUpdate(ctx, obj, old)
	}
	return [2][]string{sortedTexts(errs), sorted(warnings)}
}

// pseudoRandom returns the same bytes for the same number.
func pseudoRandom(number, length int) []byte {
	state := uint64(number)*0x9E3779B97F4A7C15 + 1
	bytes := make([]byte, length)
	for i := range bytes {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		bytes[i] = byte(state >> 32)
	}
	return bytes
}

// FuzzObject gives objects of any shape to one schema, which has a bit of everything, and compares as FuzzSchema does.
func FuzzObject(f *testing.F) {
	f.Add([]byte(`{"spec":{"name":"a","replicas":3,"port":80,"labels":{"a":"b"},"set":["a"],"ports":[{"name":"a"}],"pod":{"apiVersion":"v1","kind":"Pod"}}}`),
		[]byte(`{"spec":{"name":"b"}}`))
	f.Add([]byte(`{"spec":null,"status":{"conditions":[{"type":"A"},{"type":"A"},null,7]}}`), []byte(`{}`))
	f.Add([]byte(`{"spec":{"pod":{"metadata":{"name":{}}},"any":{"x":[[{"y":null}]]},"replicas":1e300}}`), []byte(`{"metadata":7,"kind":{}}`))
	crd := withStatus(definition(f, everything))
	s, o := New(crd, "v1"), newOracle(f, crd)
	f.Fuzz(func(t *testing.T, first, second []byte) {
		c := comparison{t, s, o, crd.Spec.Versions[0].Schema.OpenAPIV3Schema}
		var objects []map[string]any
		for _, text := range [][]byte{first, second} {
			obj := map[string]any{}
			if json.Unmarshal(text, &obj) != nil || obj == nil {
				return
			}
			if obj = c.process(obj); obj == nil {
				return
			}
			objects = append(objects, complete(obj))
		}
		c.validate(objects[0], nil, false)
		c.validate(objects[1], objects[0], false)
		KeepAllButStatus(objects[1], objects[0])
		c.validate(objects[1], objects[0], true)
	})
}

const everything = `
type: object
required: [spec]
properties:
  spec:
    type: object
    default: {replicas: 2}
    x-kubernetes-validations:
    - {rule: "!has(oldSelf.name) || self.name == oldSelf.name", message: name is immutable, fieldPath: .name}
    - {rule: "self.replicas < 10", messageExpression: "'too many: ' + string(self.replicas)"}
    - {rule: "!has(self.port) || type(self.port) == int || self.port.endsWith('%')"}
    properties:
      name: {type: string, minLength: 1, maxLength: 10, pattern: '^[a-z]*$'}
      replicas: {type: integer, format: int32, minimum: 0, default: 1}
      ratio: {type: number, maximum: 1, exclusiveMaximum: true, nullable: true}
      port: {x-kubernetes-int-or-string: true}
      labels: {type: object, maxProperties: 3, additionalProperties: {type: string, maxLength: 5}}
      set: {type: array, maxItems: 9, x-kubernetes-list-type: set, items: {type: string, maxLength: 20, x-kubernetes-validations: [{rule: "self != 'no'"}]}}
      pod: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
      any: {x-kubernetes-preserve-unknown-fields: true}
      either: {type: object, oneOf: [{required: [a]}, {required: [b]}], properties: {a: {type: string}, b: {type: boolean}}}
      ports:
        type: array
        maxItems: 9
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [name, protocol]
        items:
          type: object
          required: [name]
          x-kubernetes-validations: [{rule: "!has(oldSelf.port) || self.port == oldSelf.port"}]
          properties: {name: {type: string, maxLength: 9}, port: {type: integer}, protocol: {type: string, enum: [TCP, UDP], default: TCP}}
  status:
    type: object
    properties:
      conditions:
        type: array
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [type]
        items: {type: object, required: [type], properties: {type: {type: string}, at: {type: string, format: date-time}}}
`

// FuzzExpression evaluates any rule on any object. None may panic, and the budget bounds what one takes.
func FuzzExpression(f *testing.F) {
	const obj = `{"name":"a","replicas":3,"labels":{"a":"b"},"set":["a","b"],"any":{"x":[1,{"y":null}]},"ports":[{"name":"a","port":1}]}`
	for _, rule := range []string{"true", "self.name == 'a'", "self.set.all(x, self.set.all(y, self.set.all(z, self.set.all(a, x + y + z + a != ''))))", "self.any.x[1].y == null", "oldSelf.replicas < self.replicas",
		"self.labels.map(k, self.labels[k]).exists(v, v.matches('^(a+)+$'))", "[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, [1,2,3,4,5,6,7,8,9].all(e, a + b + c + d + e > 0)))))",
		"self.ports == oldSelf.ports", "dyn(self) == dyn(oldSelf)", "'a'.replace('', 'aaaaaaaaaaaaaaaaaaaa').size() > 0", "self.either.a", "type(self.pod) == map", "self.ratio > 1.0 / 0.0", "string(self.port)"} {
		f.Add(rule, obj)
	}
	f.Fuzz(func(t *testing.T, rule, text string) {
		spec := map[string]any{}
		if len(rule) > 4096 || len(text) > 4096 || json.Unmarshal([]byte(text), &spec) != nil {
			return
		}
		crd := definition(t, everything)
		props := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		props.XValidations = apiextensionsv1.ValidationRules{{Rule: rule, MessageExpression: rule}, {Rule: rule, Message: "no"}}
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = props
		s, obj := New(crd, "v1"), map[string]any{"spec": spec}
		start := time.Now()
		if _, err := s.Prune(obj, false); err != nil {
			return
		}
		if err := s.Default(obj); err != nil {
			return
		}
		obj = complete(obj)
		errs := s.Validate(context.Background(), obj)
		errs = append(errs, s.ValidateUpdate(context.Background(), obj, runtime.DeepCopyJSON(obj))...)
		if took := time.Since(start); took > 10*time.Second {
			t.Fatalf("%q took %v: %v", rule, took, errs)
		}
	})
}
