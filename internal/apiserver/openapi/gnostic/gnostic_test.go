package gnostic

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"sigs.k8s.io/yaml"
)

// TestSameAsGnostic compares the encoding of every served document with gnostic's.
func TestSameAsGnostic(t *testing.T) {
	files, err := filepath.Glob("../documents/*.json.gz")
	if err != nil || len(files) == 0 {
		t.Fatal("no documents", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json.gz"), func(t *testing.T) {
			t.Parallel()
			data := load(t, file)
			if filepath.Base(file) == "v2.json.gz" {
				compareV2(t, data)
			} else {
				compareV3(t, data)
			}
		})
	}
}

// TestRarities checks members that built-in types do not use, but custom resources and aggregated servers may.
func TestRarities(t *testing.T) {
	schema := `{"type":"object","title":"a \"t\"\u00e9","nullable":true,"properties":{
		"n":{"type":"number","minimum":-1.5,"maximum":3,"multipleOf":0.5,"exclusiveMinimum":true,"default":1.25,"example":{"a":[1,"b"]}},
		"b":{"type":"boolean","default":false},"s":{"type":"string","minLength":1,"maxLength":99,"pattern":"^a\\.b$","default":"x","enum":["x","z"]},
		"o":{"type":"object","additionalProperties":true,"default":{"k":"v"}},"p":{"type":"object","additionalProperties":false},
		"l":{"type":"array","items":{"type":"integer","format":"int64"},"minItems":1,"maxItems":2,"uniqueItems":true},
		"x-not-an-extension":{"type":"string"}, "$ref":{"type":"string"},
		"any":{"anyOf":[{"type":"string"},{"$ref":"#/components/schemas/B"}],"not":{"type":"integer"},"oneOf":[{"required":["a"]}]}},
		"minProperties":1,"maxProperties":9,"required":["n"],"x-kubernetes-validations":[{"rule":"self.n > 0"}],"x-kubernetes-embedded-resource":true}`
	compareV3(t, []byte(`{"openapi":"3.0.0","info":{"title":"t","version":"1"},"paths":{"/a":{"get":{"deprecated":true,"parameters":[
		{"name":"h","in":"header","style":"simple","schema":{"type":"string"}},{"$ref":"#/components/parameters/P"}],
		"responses":{"default":{"description":"d"},"200":{"$ref":"#/components/responses/R"}},"security":[{"BearerToken":["a","b"]}]}}},
		"components":{"schemas":{"A":`+schema+`},"parameters":{"P":{"name":"p","in":"query","required":true,"schema":{"type":"string"}}},
		"responses":{"R":{"description":"r","content":{"application/json":{"schema":{"$ref":"#/components/schemas/A"}}}}}},
		"externalDocs":{"url":"https://example.com"}}`))
	v2Schema := strings.NewReplacer(`"nullable":true,`, ``, `"any":{"anyOf":[{"type":"string"},{"$ref":"#/components/schemas/B"}],"not":{"type":"integer"},"oneOf":[{"required":["a"]}]}`,
		`"any":{"allOf":[{"type":"string"}],"description":"d","readOnly":true,"externalDocs":{"url":"u"}}`).Replace(schema)
	compareV2(t, []byte(` { "swagger" : "2.0", "info":{"title":"t","version":"1"}, "host":"h", "paths":{"/a":{"get":{"parameters":[
		{"name":"h","in":"header","type":"string","format":"f"},{"name":"f","in":"formData","type":"integer","maximum":3},
		{"$ref":"#/parameters/P"},{"name":"body","in":"body","required":true,"schema":{"$ref":"#/definitions/A"}}],
		"responses":{"default":{"description":"d","schema":{"type":["string"]}},"x-a":1}},"x-b":null}},
		"definitions":{"A":`+v2Schema+`}, "parameters":{"P":{"name":"p","in":"query","type":"string","allowEmptyValue":true,"enum":["a"]},
		"Q":{"name":"q","in":"path","required":true,"type":"string","pattern":"a"}} }`))
}

func TestBrokenDocuments(t *testing.T) {
	whole := load(t, "../documents/apis_apps.json.gz")
	for _, n := range []int{0, 1, 2, 10, 100, len(whole) / 2, len(whole) - 1} {
		if _, err := V3(whole[:n]); err == nil {
			t.Errorf("the first %d bytes of a document are accepted", n)
		}
	}
	for _, s := range []string{`[]`, `{"openapi":3}`, `{"info":"x"}`, `{"paths" {}}`, `{"paths":{}"a":1}`, `{"info":{"title":"\"`, `{"tags":["a" "b"]}`} {
		if _, err := V3([]byte(s)); err == nil && s != `{"tags":["a" "b"]}` {
			t.Errorf("%s is accepted", s)
		}
	}
	if _, err := V2([]byte(`{"parameters":{"a":{"in":"cookie"}}}`)); err == nil {
		t.Error("a parameter in a cookie is accepted")
	}
}

func compareV2(t *testing.T, data []byte) {
	t.Helper()
	want, err := openapi_v2.ParseDocument(data)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := V2(data)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, want, encoded, &openapi_v2.Document{})
}

func compareV3(t *testing.T, data []byte) {
	t.Helper()
	want, err := openapi_v3.ParseDocument(data)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := V3(data)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, want, encoded, &openapi_v3.Document{})
}

func compare(t *testing.T, want proto.Message, encoded []byte, got proto.Message) {
	t.Helper()
	if err := proto.Unmarshal(encoded, got); err != nil {
		t.Fatal(err)
	}
	normalize(t, want.ProtoReflect())
	normalize(t, got.ProtoReflect())
	if proto.Equal(want, got) {
		return
	}
	t.Errorf("differs from gnostic: %s", firstDifference(want.ProtoReflect(), got.ProtoReflect(), ""))
}

// normalize rewrites all YAML so that equal values are equal strings.
func normalize(t *testing.T, m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Name() == "yaml":
			j, err := yaml.YAMLToJSON([]byte(v.String()))
			if err != nil {
				t.Fatal(err)
			}
			var value any
			if err := json.Unmarshal(j, &value); err != nil {
				t.Fatal(err)
			}
			j, _ = json.Marshal(value)
			m.Set(f, protoreflect.ValueOfString(string(j)))
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				normalize(t, v.List().Get(i).Message())
			}
		case f.Message() != nil:
			normalize(t, v.Message())
		}
		return true
	})
}

func firstDifference(want, got protoreflect.Message, path string) string {
	fields := want.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		here := path + "." + string(f.Name())
		a, b := want.Get(f), got.Get(f)
		switch {
		case want.Has(f) != got.Has(f):
			return here + " is in one only: " + a.String() + " / " + b.String()
		case a.Equal(b):
		case f.IsList() && a.List().Len() == b.List().Len() && f.Message() != nil:
			for j := range a.List().Len() {
				if !a.List().Get(j).Equal(b.List().Get(j)) {
					return firstDifference(a.List().Get(j).Message(), b.List().Get(j).Message(), here)
				}
			}
		case f.Message() != nil && !f.IsList():
			return firstDifference(a.Message(), b.Message(), here)
		default:
			return here + ": " + a.String() + " / " + b.String()
		}
	}
	return path
}

func load(t testing.TB, file string) []byte {
	t.Helper()
	f, err := os.Open(file)
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
	return data
}

func BenchmarkV2(b *testing.B) {
	data := load(b, "../documents/v2.json.gz")
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := V2(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkV3(b *testing.B) {
	data := load(b, "../documents/api_v1.json.gz")
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := V3(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGnosticItself(b *testing.B) {
	data := bytes.Clone(load(b, "../documents/v2.json.gz"))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := openapi_v2.ParseDocument(data); err != nil {
			b.Fatal(err)
		}
	}
}
