package custom_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/util/proto"
	"k8s.io/kube-openapi/pkg/util/proto/validation"
	explain "k8s.io/kubectl/pkg/explain/v2"
	"sigs.k8s.io/yaml"

	"skiff/internal/apiserver/openapi"
	"skiff/internal/apiserver/openapi/custom"
)

// conformanceSchema is like the schemas of the conformance specs of published OpenAPI documents.
const conformanceSchema = `
type: object
description: Foo CRD for Testing
properties:
  spec:
    type: object
    description: Specification of Foo
    properties:
      bars:
        description: List of Bars and their specs.
        type: array
        items:
          type: object
          required: [name]
          properties:
            name: {description: Name of Bar., type: string}
            age: {description: Age of Bar., type: string}
            feeling: {description: Whether Bar is feeling great., type: string, enum: [Great, Down]}
            bazs: {description: List of Bazs., items: {type: string}, type: array}
  status:
    description: Status of Foo
    type: object
    properties: {ready: {type: boolean}}
`

func structural(t testing.TB, text string) *structuralschema.Structural {
	t.Helper()
	var props apiextensionsv1.JSONSchemaProps
	if err := yaml.UnmarshalStrict([]byte(text), &props); err != nil {
		t.Fatal(err)
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&props, &internal, nil); err != nil {
		t.Fatal(err)
	}
	s, err := structuralschema.NewStructural(&internal)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func foo(t testing.TB, group, text string) custom.Resource {
	r := custom.Resource{GVK: schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Foo"}, ListKind: "FooList", Plural: "foos", Namespaced: true,
		Status: true, SelectableFields: []string{".spec.name"}}
	if text != "" {
		r.Schema = structural(t, text)
	}
	return r
}

func put(t testing.TB, h *openapi.Handler, generation int, r custom.Resource) {
	t.Helper()
	gv, resources := r.GVK.GroupVersion(), []custom.Resource{r}
	err := h.Put("apis/"+gv.String(), fmt.Sprintf("uid,%d", generation), func() ([]byte, error) { return custom.V3(gv, resources) },
		func() ([]byte, error) { return custom.V2(gv, resources) })
	if err != nil {
		t.Fatal(err)
	}
}

func serve(t *testing.T, resources ...custom.Resource) (*httptest.Server, *discovery.DiscoveryClient) {
	t.Helper()
	h := openapi.New(time.Now)
	for _, r := range resources {
		put(t, h, 1, r)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	c, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return server, c
}

// TestV2IsTheSchema does what the conformance specs do: the published definition is the schema, less what every object has.
func TestV2IsTheSchema(t *testing.T) {
	server, _ := serve(t, foo(t, "conformance.example.com", conformanceSchema), foo(t, "bare.example.com", ""),
		foo(t, "open.example.com", "{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {spec: {type: object}}}"),
		foo(t, "nested.example.com", "{type: object, description: d, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true, description: e}}}"))
	get := func(etag string) (*http.Response, map[string]map[string]any) {
		request, err := http.NewRequest("GET", server.URL+"/openapi/v2", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("If-None-Match", etag)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		var document struct{ Definitions map[string]map[string]any }
		if response.StatusCode == 200 {
			if err := json.Unmarshal(body, &document); err != nil {
				t.Fatal(err)
			}
		}
		return response, document.Definitions
	}
	response, definitions := get("")
	if again, _ := get(response.Header.Get("ETag")); again.StatusCode != http.StatusNotModified {
		t.Errorf("with the ETag: %s", again.Status)
	}
	for group, want := range map[string]string{"conformance": conformanceSchema, "bare": "type: object", "open": "type: object",
		"nested": "{type: object, description: d, properties: {spec: {x-kubernetes-preserve-unknown-fields: true, description: e}}}"} {
		got := definitions["com.example."+group+".v1.Foo"]
		delete(got, "x-kubernetes-group-version-kind")
		delete(got, "x-kubernetes-selectable-fields")
		if properties, ok := got["properties"].(map[string]any); ok {
			for _, name := range []string{"apiVersion", "kind", "metadata"} {
				if properties[name] == nil {
					t.Errorf("%s has no %s", group, name)
				}
				delete(properties, name)
			}
		}
		var wanted map[string]any
		if err := yaml.Unmarshal([]byte(want), &wanted); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, wanted) {
			t.Errorf("%s is\n%v\nwant\n%v", group, got, wanted)
		}
	}
}

// TestExplain does what kubectl explain does.
func TestExplain(t *testing.T) {
	_, client := serve(t, foo(t, "conformance.example.com", conformanceSchema), foo(t, "bare.example.com", ""))
	for _, test := range []struct {
		group, fields string
		want          []string
	}{
		{"conformance", "", []string{"GROUP:      conformance.example.com\nKIND:       Foo\nVERSION:    v1\n", "Foo CRD for Testing", "  metadata\t<ObjectMeta>\n", "  spec\t<Object>\n"}},
		{"conformance", "metadata", []string{"Standard object's metadata", "  creationTimestamp\t<string>"}},
		{"conformance", "spec.bars", []string{"FIELD: bars <[]Object>", "List of Bars and their specs.", "  feeling\t<string>\n  enum: Great, Down\n", "  name\t<string> -required-\n"}},
		{"conformance", "spec.bars.age", []string{"FIELD: age <string>", "Age of Bar."}},
		{"bare", "", []string{"KIND:       Foo", "    <empty>\n"}},
	} {
		var fields []string
		if test.fields != "" {
			fields = strings.Split(test.fields, ".")
		}
		var out bytes.Buffer
		gvr := schema.GroupVersionResource{Group: test.group + ".example.com", Version: "v1", Resource: "foos"}
		if err := explain.PrintModelDescription(fields, &out, client.OpenAPIV3(), gvr, false, 0, "plaintext"); err != nil {
			t.Errorf("%s %s: %v", test.group, test.fields, err)
		}
		for _, want := range test.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s %s: %q is not in\n%s", test.group, test.fields, want, out.String())
			}
		}
	}
	var out bytes.Buffer
	gvr := schema.GroupVersionResource{Group: "conformance.example.com", Version: "v1", Resource: "foos"}
	err := explain.PrintModelDescription([]string{"spec", "bars2"}, &out, client.OpenAPIV3(), gvr, false, 0, "plaintext")
	if err == nil || !strings.Contains(err.Error(), `field "bars2" does not exist`) {
		t.Errorf("a field that is not there: %v", err)
	}
}

// TestClientGo reads both versions with client-go, and validates objects as clients do with v2.
func TestClientGo(t *testing.T) {
	_, client := serve(t, foo(t, "conformance.example.com", conformanceSchema), foo(t, "bare.example.com", ""))
	gv := schema.GroupVersion{Group: "conformance.example.com", Version: "v1"}
	root := openapi3.NewRoot(client.OpenAPIV3())
	versions, err := root.GroupVersions()
	if err != nil || !slices.Contains(versions, gv) {
		t.Fatalf("%v, %v", versions, err)
	}
	spec, err := root.GVSpec(gv)
	if err != nil || len(spec.Paths.Paths) != 4 || spec.Components.Schemas["com.example.conformance.v1.Foo"] == nil {
		t.Errorf("%v, %v", spec, err)
	}
	document, err := client.OpenAPISchema()
	if err != nil {
		t.Fatal(err)
	}
	models, err := proto.NewOpenAPIData(document)
	if err != nil {
		t.Fatal(err)
	}
	model := models.LookupModel("com.example.conformance.v1.Foo")
	for text, want := range map[string]int{
		"{apiVersion: conformance.example.com/v1, kind: Foo, metadata: {name: a}, spec: {bars: [{name: b, age: '9'}]}}": 0,
		"{spec: {bars: [{age: '9'}]}}":                  1,
		"{spec: {foo: 1, bars: [{name: b, bazs: {}}]}}": 2,
	} {
		var object any
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		if errs := validation.ValidateModel(object, model, "foo"); len(errs) != want {
			t.Errorf("%s has errors %v, want %d", text, errs, want)
		}
	}
}

type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

// BenchmarkServeV2 measures /openapi/v2 with definitions of 8 kB: the first request, and that after one of them has changed.
func BenchmarkServeV2(b *testing.B) {
	var text strings.Builder
	text.WriteString("type: object\nproperties:\n  spec:\n    type: object\n    properties:\n")
	for i := range 75 {
		fmt.Fprintf(&text, "      field%d: {type: string, description: 'what this field is for, in a sentence as people write them, %d'}\n", i, i*i)
	}
	s := structural(b, text.String())
	for _, count := range []int{1, 500, 1000} {
		for name, accept := range map[string]string{"JSON": "application/json", "protobuf": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"} {
			b.Run(fmt.Sprintf("%d/%s", count, name), func(b *testing.B) {
				h := openapi.New(time.Now)
				change := func(n, generation int) {
					r := foo(b, fmt.Sprintf("g%d.example.com", n), "")
					r.Schema = s
					put(b, h, generation, r)
				}
				for n := range count {
					change(n, 1)
				}
				r := httptest.NewRequest("GET", "/openapi/v2", nil)
				r.Header.Set("Accept-Encoding", "gzip")
				r.Header.Set("Accept", accept)
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				started := time.Now()
				h.ServeHTTP(discard{http.Header{}}, r)
				first := time.Since(started)
				runtime.GC()
				runtime.ReadMemStats(&after)
				retained := float64(after.HeapAlloc) - float64(before.HeapAlloc)
				b.ReportAllocs()
				generation := 1
				for b.Loop() {
					generation++
					change(0, generation)
					h.ServeHTTP(discard{http.Header{}}, r)
				}
				b.ReportMetric(float64(first.Microseconds())/1000, "first-ms")
				b.ReportMetric(retained/1024, "retained-kB")
			})
		}
	}
}
