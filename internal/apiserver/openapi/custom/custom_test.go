package custom

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

var (
	stableV1    = schema.GroupVersion{Group: "stable.example.com", Version: "v1"}
	stableBeta1 = schema.GroupVersion{Group: "stable.example.com", Version: "v1beta1"}
)

// recorded returns the resources of testdata/definitions.yaml in a version.
func recorded(t testing.TB, version string) []Resource {
	t.Helper()
	data, err := os.ReadFile("testdata/definitions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var resources []Resource
	for _, text := range bytes.Split(data, []byte("\n---\n")) {
		resources = append(resources, resourcesOf(t, version, text)...)
	}
	return resources
}

func resourcesOf(t testing.TB, version string, definition []byte) []Resource {
	t.Helper()
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(definition, &crd); err != nil {
		t.Fatal(err)
	}
	var resources []Resource
	for _, v := range crd.Spec.Versions {
		if v.Name != version {
			continue
		}
		r := Resource{GVK: schema.GroupVersionKind{Group: crd.Spec.Group, Version: version, Kind: crd.Spec.Names.Kind}, ListKind: crd.Spec.Names.ListKind,
			Plural: crd.Spec.Names.Plural, Namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped, PreserveUnknownFields: crd.Spec.PreserveUnknownFields}
		if v.Subresources != nil {
			r.Status, r.Scale = v.Subresources.Status != nil, v.Subresources.Scale != nil
		}
		for _, field := range v.SelectableFields {
			r.SelectableFields = append(r.SelectableFields, field.JSONPath)
		}
		if v.Schema != nil {
			r.Schema = structural(t, v.Schema.OpenAPIV3Schema)
		}
		resources = append(resources, r)
	}
	return resources
}

func structural(t testing.TB, props *apiextensionsv1.JSONSchemaProps) *structuralschema.Structural {
	t.Helper()
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(props, &internal, nil); err != nil {
		t.Fatal(err)
	}
	s, err := structuralschema.NewStructural(&internal)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func golden(t *testing.T, file string) map[string]any {
	t.Helper()
	f, err := os.Open("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, data)
}

func decode(t testing.TB, data []byte) map[string]any {
	t.Helper()
	var document map[string]any
	if err := json.Unmarshal(data, &document); err != nil {
		t.Fatal(err)
	}
	return document
}

// TestV3IsUpstreams compares the documents of two group versions with those that upstream serves for the same definitions.
func TestV3IsUpstreams(t *testing.T) {
	for _, gv := range []schema.GroupVersion{stableV1, stableBeta1} {
		resources := recorded(t, gv.Version)
		before := fmt.Sprintf("%#v", resources[0].Schema)
		data, err := V3(gv, resources)
		if err != nil {
			t.Fatal(err)
		}
		same(t, gv.Version, golden(t, "v3-"+gv.Version+".json.gz"), decode(t, data))
		if again, err := V3(gv, resources); err != nil || !bytes.Equal(again, data) {
			t.Errorf("%s is built differently a second time: %v", gv, err)
		}
		if fmt.Sprintf("%#v", resources[0].Schema) != before {
			t.Error("the schema was modified")
		}
	}
}

// TestV2IsUpstreams compares what the definitions add to the OpenAPI v2 document. Parameters are those of built-in resources, by the same names.
func TestV2IsUpstreams(t *testing.T) {
	got := map[string]any{"paths": map[string]any{}, "definitions": map[string]any{}}
	for _, gv := range []schema.GroupVersion{stableV1, stableBeta1} {
		data, err := V2(gv, recorded(t, gv.Version))
		if err != nil {
			t.Fatal(err)
		}
		document := decode(t, data)
		for section := range got {
			maps.Copy(got[section].(map[string]any), document[section].(map[string]any))
		}
	}
	want := golden(t, "v2.json.gz")
	delete(want, "parameters")
	same(t, "v2", want, got)
}

// same reports where two values differ.
func same(t *testing.T, path string, want, got any) {
	t.Helper()
	if reflect.DeepEqual(want, got) {
		return
	}
	w, okW := want.(map[string]any)
	g, okG := got.(map[string]any)
	if !okW || !okG {
		wantText, _ := json.Marshal(want)
		gotText, _ := json.Marshal(got)
		t.Errorf("%s is\n%.1500s\nwant\n%.1500s", path, gotText, wantText)
		return
	}
	names := slices.Sorted(maps.Keys(w))
	for name := range g {
		if _, ok := w[name]; !ok {
			names = append(names, name)
		}
	}
	for _, name := range names {
		_, inW := w[name]
		_, inG := g[name]
		if inW != inG {
			t.Errorf("%s: %q is in one only (ours: %v)", path, name, inG)
			continue
		}
		same(t, path+"."+name, w[name], g[name])
	}
}

// TestTemplates compares the paths that are copied from a template with those that are built from routes.
func TestTemplates(t *testing.T) {
	for _, kind := range []string{"CronTab", "Owl", "Endpoints", "Class", "A", "S", "Abc9", "owl", "My-Kind", "XKindx"} {
		for _, gv := range []schema.GroupVersion{stableV1, stableBeta1, {Group: "gateway.networking.k8s.io", Version: "v1alpha2"}, {Group: "a-b.3c.io", Version: "v2"}} {
			for bits := range 8 {
				r := Resource{GVK: gv.WithKind(kind), ListKind: kind + "List", Plural: strings.ToLower(kind) + "s", Namespaced: bits&1 > 0, Status: bits&2 > 0, Scale: bits&4 > 0}
				for _, v := range []dialect{v2, v3} {
					got, err := r.paths(v)
					if err != nil {
						t.Fatal(err)
					}
					want, err := r.buildPaths(v)
					if err != nil {
						t.Fatal(err)
					}
					same(t, r.GVK.String(), decode(t, []byte("{"+want+"}")), decode(t, []byte("{"+got+"}")))
				}
			}
		}
	}
}

func TestRefuses(t *testing.T) {
	good := Resource{GVK: stableV1.WithKind("CronTab"), ListKind: "CronTabList", Plural: "crontabs"}
	if _, err := V3(stableV1, []Resource{good}); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Resource){
		"another version": func(r *Resource) { r.GVK.Version = "v2" },
		"no kind":         func(r *Resource) { r.GVK.Kind = "" },
		"no list kind":    func(r *Resource) { r.ListKind = "" },
		"no plural":       func(r *Resource) { r.Plural = "" },
	} {
		r := good
		change(&r)
		if _, err := V3(stableV1, []Resource{good, r}); err == nil {
			t.Errorf("v3: %s is accepted", name)
		}
		if _, err := V2(stableV1, []Resource{good, r}); err == nil {
			t.Errorf("v2: %s is accepted", name)
		}
	}
}

// TestV2OfIncompleteSchema checks a nullable property of a schema without value validations, on which upstream's conversion panics.
func TestV2OfIncompleteSchema(t *testing.T) {
	nullable := structuralschema.Structural{Generic: structuralschema.Generic{Type: "string", Nullable: true}}
	r := Resource{GVK: stableV1.WithKind("CronTab"), ListKind: "CronTabList", Plural: "crontabs", Schema: &structuralschema.Structural{
		Generic: structuralschema.Generic{Type: "object"}, Properties: map[string]structuralschema.Structural{"a": nullable},
		AdditionalProperties: &structuralschema.StructuralOrBool{Structural: &nullable}}}
	data, err := V2(stableV1, []Resource{r})
	if err != nil || !strings.Contains(string(data), `"a":{}`) {
		t.Errorf("%v, %s", err, data)
	}
}

// large returns a resource whose schema has about 8 kB of JSON.
func large(t testing.TB, n int) Resource {
	var fields strings.Builder
	for i := range 75 {
		fmt.Fprintf(&fields, "              field%d: {type: string, description: 'what this field is for, in a sentence as people write them, %d'}\n", i, i*n)
	}
	definition := fmt.Sprintf(`
spec:
  group: g%d.example.com
  scope: Namespaced
  names: {plural: things, kind: Thing, listKind: ThingList}
  versions:
  - name: v1
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
%s`, n, fields.String())
	return resourcesOf(t, "v1", []byte(definition))[0]
}

func BenchmarkV2(b *testing.B) {
	r := large(b, 1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := V2(r.GVK.GroupVersion(), []Resource{r}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkV3(b *testing.B) {
	r := large(b, 1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := V3(r.GVK.GroupVersion(), []Resource{r}); err != nil {
			b.Fatal(err)
		}
	}
}
