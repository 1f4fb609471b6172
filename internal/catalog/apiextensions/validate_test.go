package apiextensions

import (
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// widgets returns a valid definition with one version, whose schema is given.
func widgets(t testing.TB, schema string) *definition {
	t.Helper()
	d := &definition{ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"}}
	d.Spec = apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.com", Scope: "Namespaced",
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"}}
	version := apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1", Served: true, Storage: true}
	if schema != "" {
		version.Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{}}
		if err := yaml.UnmarshalStrict([]byte(schema), version.Schema.OpenAPIV3Schema); err != nil {
			t.Fatal(err)
		}
	}
	d.Spec.Versions = append(d.Spec.Versions, version)
	setDefaults(d)
	return d
}

const open = "{type: object, properties: {open: {type: object, additionalProperties: true}, bounded: {type: string}}}"

// TestWherePathsEnd checks paths of fields at which upstream's server panics, and generated names, which no story can record.
func TestWherePathsEnd(t *testing.T) {
	selecting := func(schema string, paths ...string) *definition {
		d := widgets(t, schema)
		for _, path := range paths {
			d.Spec.Versions[0].SelectableFields = append(d.Spec.Versions[0].SelectableFields, apiextensionsv1.SelectableField{JSONPath: path})
		}
		return d
	}
	generated := widgets(t, open)
	generated.GenerateName, generated.Name = "widgets-", "widgets-abcde"
	emptySchema := selecting("", ".spec.a")
	emptySchema.Spec.Versions[0].Schema = &apiextensionsv1.CustomResourceValidation{}
	for _, test := range []struct {
		name string
		d    *definition
		want []string
	}{
		{"below values without a schema", selecting(open, ".open.a.b"), []string{`jsonPath: Invalid value: ".open.a.b": is an invalid path: does not refer to a valid field`}},
		{"longer than any name", selecting(open, "."+strings.Repeat("a", 70_000)), []string{"is an invalid path: does not refer to a valid field"}},
		{"in an empty schema", emptySchema, []string{"openAPIV3Schema: Required value"}},
		{"in a schema that is not structural", selecting("{type: object, items: [{type: string}]}", ".a"),
			[]string{"OpenAPIV3Schema 'items' must be a schema, but is an array"}},
		{"of a rule, below values without a schema", widgets(t, "{type: object, properties: {open: {type: object, additionalProperties: true}}, "+
			"x-kubernetes-validations: [{rule: 'true', fieldPath: .open.a.b}]}"), []string{"must be a valid path"}},
		{"a generated name", generated, []string{`metadata.generateName: Invalid value: "widgets-": must be spec.names.plural+"."+spec.group`,
			`metadata.name: Invalid value: "widgets-abcde": must be spec.names.plural+"."+spec.group`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := fmt.Sprint(validateCreate(test.d).ToAggregate())
			for _, want := range test.want {
				if !strings.Contains(got, want) {
					t.Errorf("got %s, want %s", got, want)
				}
			}
		})
	}
}

// TestLeniency checks that an update may leave as it is what the rules of today forbid: definitions that older releases accepted.
func TestLeniency(t *testing.T) {
	for _, test := range []struct {
		name          string
		schema, other string // invalid; and another with the same fault
		change        func(*definition)
	}{
		{"an unknown type", "{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {a: {type: strange}}}",
			"{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {a: {type: strange, description: d}}}", nil},
		{"unpruned defaults", "{type: object, properties: {a: {type: object, default: {b: 1}}}}",
			"{type: object, properties: {a: {type: object, default: {b: 2}}}}", nil},
		{"a set of granular objects", "{type: object, properties: {a: {type: array, items: {type: object}, x-kubernetes-list-type: set}}}",
			"{type: object, properties: {b: {type: array, items: {type: object}, x-kubernetes-list-type: set}}}", nil},
		{"optional keys", "{type: object, properties: {a: {type: array, items: {type: object, properties: {k: {type: string}}}, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k]}}}",
			"{type: object, properties: {b: {type: array, items: {type: object, properties: {k: {type: string}}}, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k]}}}", nil},
		{"no structural schema", "{properties: {a: {}}}", "{properties: {b: {}}}", func(d *definition) { d.Spec.PreserveUnknownFields = true }},
		{"no schema", "", "", func(d *definition) { d.Spec.Versions[0].Served = false }},
		{"review versions nobody knows", open, open, func(d *definition) {
			url := "https://example.com"
			d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
				ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: &url}, ConversionReviewVersions: []string{"v9"}}}
		}},
		{"an invalid bundle of an established definition", open, open, func(d *definition) {
			url := "https://example.com"
			d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
				ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: []byte("none")}, ConversionReviewVersions: []string{"v1"}}}
			d.Status.Conditions = []condition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
		}},
		{"too many selectable fields", manyFields(9), manyFields(9), func(d *definition) {
			for i := range 9 {
				d.Spec.Versions[0].SelectableFields = append(d.Spec.Versions[0].SelectableFields, apiextensionsv1.SelectableField{JSONPath: fmt.Sprintf(".f%d", i)})
			}
		}},
		{"a rule that costs too much, in a schema that is the same", costly, costly, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			old, new := widgets(t, test.schema), widgets(t, test.other)
			for _, d := range []*definition{old, new} {
				if test.change != nil {
					test.change(d)
				}
			}
			valid := widgets(t, open)
			valid.Status.Conditions = old.Status.Conditions
			if errs := validateUpdate(new, valid); len(errs) == 0 {
				t.Errorf("the update of a valid definition is valid")
			}
			if errs := validateUpdate(new, old); len(errs) > 0 {
				t.Errorf("the update of an invalid definition: %v", errs)
			}
		})
	}
}

const costly = `{type: object, properties: {a: {type: array, maxItems: 1000, items: {type: string, maxLength: 100}, x-kubernetes-validations: [{rule: "self.all(x, self.all(y, x != y))"}]}}}`

func manyFields(n int) string {
	var b strings.Builder
	b.WriteString("{type: object, properties: {")
	for i := range n {
		fmt.Fprintf(&b, "f%d: {type: string}, ", i)
	}
	return b.String() + "}}"
}

// TestLongReports checks that the answer to a deep schema that is wrong everywhere is not many times its size.
func TestLongReports(t *testing.T) {
	const deep = 2000
	d := widgets(t, "{type: object}")
	at := d.Spec.Versions[0].Schema.OpenAPIV3Schema
	for range deep {
		child := apiextensionsv1.JSONSchemaProps{Type: "strange", UniqueItems: true, ID: "x"}
		at.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &child}
		at = &child
	}
	size := 0
	errs := validateCreate(d)
	for _, err := range errs {
		size += len(err.Error())
	}
	if len(errs) == 0 || size > 2*longestReport {
		t.Errorf("%d errors of %d bytes", len(errs), size)
	}
}
