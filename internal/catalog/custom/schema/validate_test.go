package schema

import (
	"context"
	"os"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// validateStory is a story of testdata/validate.yaml: a schema, and writes one after the other. What is accepted is the old object of the
// next update.
type validateStory struct {
	Story  string                          `json:"story"`
	Schema apiextensionsv1.JSONSchemaProps `json:"schema"`
	Steps  []struct {
		Schema   *apiextensionsv1.JSONSchemaProps `json:"schema"` // replaces the schema, from this step on
		Create   map[string]any                   `json:"create"`
		Update   map[string]any                   `json:"update"`
		Status   map[string]any                   `json:"status"` // an update through the status subresource
		Errors   []string                         `json:"errors"`
		Warnings []string                         `json:"warnings"`
	} `json:"steps"`
}

// TestValidate tells the stories of testdata/validate.yaml to a Schema, and to upstream's libraries: both must say what the file says.
func TestValidate(t *testing.T) {
	text, err := os.ReadFile("testdata/validate.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if text, err = yaml.YAMLToJSON(text); err != nil {
		t.Fatal(err)
	}
	var stories []validateStory
	if err := json.Unmarshal(text, &stories); err != nil {
		t.Fatal(err)
	}
	for _, story := range stories {
		t.Run(story.Story, func(t *testing.T) { story.run(t) })
	}
}

func (story *validateStory) run(t *testing.T) {
	schema := &story.Schema
	var stored map[string]any
	for i, step := range story.Steps {
		if step.Schema != nil {
			schema = step.Schema
		}
		crd := withStatus(definition(t, ""))
		crd.Spec.Versions[0].Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema}
		c := comparison{t, New(crd, "v1"), newOracle(t, crd), schema}
		if c.oracle == nil {
			t.Fatalf("step %d: the schema is not structural", i+1)
		}
		obj, old := step.Create, stored
		switch {
		case step.Create != nil:
			old = nil
		case step.Update != nil:
			obj = step.Update
		default:
			obj = step.Status
		}
		complete(obj)
		isStatus := step.Status != nil
		got := c.errors(obj, old, isStatus)
		want, warnings := c.oracle.validate(obj, old, isStatus)
		if !slices.Equal(got[0], want) || !slices.Equal(got[1], warnings) {
			t.Errorf("step %d: got %q, upstream has %q", i+1, got, [][]string{want, warnings})
		}
		if !slices.Equal(got[0], sorted(step.Errors)) {
			t.Errorf("step %d: errors\n%s\nwant\n%s", i+1, lines(got[0]), lines(sorted(step.Errors)))
		}
		if !slices.Equal(got[1], sorted(step.Warnings)) {
			t.Errorf("step %d: warnings\n%s\nwant\n%s", i+1, lines(got[1]), lines(sorted(step.Warnings)))
		}
		if len(got[0]) == 0 {
			stored = obj
		}
	}
}

func lines(texts []string) string {
	text := ""
	for _, line := range texts {
		text += "    - " + string(encode(line)) + "\n"
	}
	return text
}

// TestValidateKind shows that an object of another kind or version is refused for that, and not for its values.
func TestValidateKind(t *testing.T) {
	s := New(definition(t, "{type: object, required: [spec]}"), "v1")
	errs := s.Validate(context.Background(), map[string]any{"kind": "Gadget", "apiVersion": "example.com/v2"})
	want := "kind: Invalid value: \"Gadget\": must be Widget\napiVersion: Invalid value: \"example.com/v2\": must be example.com/v1"
	if got := texts(errs); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestFoundErrorsBlockRules shows that errors in metadata, which the caller found, keep rules from running as errors in values do.
func TestFoundErrorsBlockRules(t *testing.T) {
	s := New(definition(t, `{type: object, x-kubernetes-validations: [{rule: "false"}]}`), "v1")
	obj := object(t, "{}")
	name := field.NewPath("metadata", "name")
	for _, c := range []struct {
		found *field.Error
		want  string
	}{
		{field.Required(name, "name or generateName is required"), "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"},
		{field.Invalid(name, "A", "must be lower case"), "<nil>: Invalid value: failed rule: false"},
	} {
		if got := texts(s.Validate(context.Background(), obj, c.found)); got != c.want {
			t.Errorf("with %v: got %s, want %s", c.found, got, c.want)
		}
	}
}

// TestNotStructural shows what happens with schemas that are not structural, which only old definitions that preserve unknown fields have:
// values are validated, and updates ratcheted by the schema itself; nothing is pruned.
func TestNotStructural(t *testing.T) {
	crd := definition(t, `{patternProperties: {"^x": {type: string}}, properties: {spec: {properties: {a: {type: integer, maximum: 3}, b: {type: string}}}}}`)
	crd.Spec.PreserveUnknownFields = true
	s := New(crd, "v1")
	if structural, err := s.Structural(); err != nil || structural != nil {
		t.Fatalf("structural schema %v, error %v", structural, err)
	}
	old, obj := object(t, "{spec: {a: 5, b: x, c: 1}}"), object(t, "{spec: {a: 5, b: z, c: 1}}")
	if unknown, err := s.Prune(obj, true); err != nil || len(unknown) > 0 || obj["spec"].(map[string]any)["c"] == nil {
		t.Errorf("pruned %v to %v, error %v", unknown, obj, err)
	}
	want := "spec.a: Invalid value: 5: spec.a in body should be less than or equal to 3"
	if got := texts(s.Validate(context.Background(), obj)); got != want {
		t.Errorf("create: got %q, want %q", got, want)
	}
	if got := texts(s.ValidateUpdate(context.Background(), obj, old)); got != "" {
		t.Errorf("update: got %q, want it ratcheted", got)
	}
	obj["spec"].(map[string]any)["a"] = int64(6)
	if got := texts(s.ValidateUpdate(context.Background(), obj, old)); got == "" {
		t.Error("update with another invalid value: no error")
	}
}

// TestNoSchema shows that without a schema everything but metadata is pruned, unless the definition preserves it.
func TestNoSchema(t *testing.T) {
	crd := definition(t, "")
	obj := object(t, "{spec: {a: 1}}")
	unknown, err := New(crd, "v1").Prune(obj, true)
	if err != nil || !slices.Equal(unknown, []string{"spec"}) || len(obj) != 3 {
		t.Errorf("pruned %v to %v, error %v", unknown, obj, err)
	}
	crd.Spec.PreserveUnknownFields = true
	obj = object(t, "{spec: {a: 1}}")
	s := New(crd, "v1")
	if unknown, err := s.Prune(obj, true); err != nil || len(unknown) != 0 || len(obj) != 4 {
		t.Errorf("pruned %v to %v, error %v", unknown, obj, err)
	}
	if errs := s.ValidateUpdate(context.Background(), obj, obj); len(errs) > 0 {
		t.Error(errs)
	}
}

// TestCancel shows that rules stop when the request does.
func TestCancel(t *testing.T) {
	s := New(definition(t, `
type: object
properties: {list: {type: array, maxItems: 1000, items: {type: integer}}}
x-kubernetes-validations: [{rule: "self.list.all(x, self.list.all(y, x != y + 1000))"}]`), "v1")
	list := make([]any, 300)
	for i := range list {
		list[i] = int64(i)
	}
	obj := object(t, "{}")
	obj["list"] = list
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if got, want := texts(s.Validate(ctx, obj)), "<nil>: Invalid value: \"object\": operation interrupted: context canceled evaluating rule: self.list.all(x, self.list.all(y, x != y + 1000))"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestFieldPathBelowAnything shows that a fieldPath is ignored that goes where no schema is. Upstream panics on it.
func TestFieldPathBelowAnything(t *testing.T) {
	s := New(definition(t, `{type: object, properties: {a: {type: object, additionalProperties: true,
		x-kubernetes-validations: [{rule: "false", fieldPath: .b.c}]}}}`), "v1")
	if got, want := texts(s.Validate(t.Context(), object(t, "{a: {}}"))), "a: Invalid value: failed rule: false"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
