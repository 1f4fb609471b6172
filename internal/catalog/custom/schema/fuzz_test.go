package schema

import (
	"context"
	"reflect"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/warning"
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
	recorder := &recordedWarnings{}
	ctx := warning.WithWarningRecorder(context.Background(), recorder)
	var errs field.ErrorList
	switch {
	case old == nil:
		errs = c.schema.Validate(ctx, obj)
	case isStatus:
		errs = c.schema.ValidateStatusUpdate(ctx, obj, old)
	default:
		errs = c.schema.ValidateUpdate(ctx, obj, old)
	}
	return [2][]string{sortedTexts(errs), sorted(recorder.texts)}
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
