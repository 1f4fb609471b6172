package mergeschema

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// upstream returns the schema in client-go, which upstream generated from the same types.
func upstream(t *testing.T) map[string]schema.Atom {
	t.Helper()
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	value, err := applyconfigurations.NewTypeConverter(scheme.Scheme).ObjectToTyped(pod)
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]schema.Atom{}
	for _, def := range value.Schema().Types {
		types[def.Name] = def.Atom
	}
	return types
}

func TestSameAsClientGo(t *testing.T) {
	theirs := upstream(t)
	compared := 0
	for _, def := range Schema().Types {
		want, ok := theirs[def.Name]
		switch {
		case !ok:
			if !withoutApplyConfiguration(def.Name) {
				t.Errorf("client-go has no %s", def.Name)
			}
			continue
		case def.Name == "io.k8s.apimachinery.pkg.util.intstr.IntOrString":
			// Its OpenAPI v3 definition, which the server uses, has no type; the v2 definition, which client-go's schema
			// was generated from, is a string.
			want = def.Atom
		case def.Name == rawExtension:
			want = theirs[untypedAtomic]
		}
		compared++
		if diff := cmp.Diff(describe(want), describe(def.Atom)); diff != "" {
			t.Errorf("%s (-client-go +skiff):\n%s", def.Name, diff)
		}
	}
	if compared < 450 {
		t.Errorf("only %d types were compared", compared)
	}
}

const rawExtension = "io.k8s.apimachinery.pkg.runtime.RawExtension"

// withoutApplyConfiguration reports whether client-go has no apply configuration for a type: reviews and other
// virtual resources, and types that are not in k8s.io/api.
func withoutApplyConfiguration(name string) bool {
	for _, part := range []string{".authentication.v1.", ".authorization.v1.", ".meta.v1.FieldSelectorRequirement",
		".autoscaling.v1.Scale", ".core.v1.Binding", ".apiextensions.v1.", ".apiregistration.v1.", ".admissionregistration.v1alpha1.Init", ".admissionregistration.v1alpha1.Rule"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// description holds what must be equal: fields, their types, and how lists and maps are merged.
type description struct {
	Scalar, List, Map string
	Fields            map[string]description
	Element           *description
	Relationship      string
	Keys              []string
	Type              string
	Default           any
}

func describe(a schema.Atom) description {
	var d description
	if a.Scalar != nil {
		d.Scalar = string(*a.Scalar)
	}
	if a.List != nil {
		e := describeRef(a.List.ElementType)
		d.List, d.Element, d.Keys = string(a.List.ElementRelationship), &e, a.List.Keys
	}
	if a.Map != nil {
		d.Map = "map " + string(a.Map.ElementRelationship)
		d.Fields = map[string]description{}
		for _, f := range a.Map.Fields {
			field := describeRef(f.Type)
			switch f.Default.(type) { // defaults of structs, which merging never uses, are left out
			case string, bool, int, float64:
				field.Default = f.Default
			}
			d.Fields[f.Name] = field
		}
		e := describeRef(a.Map.ElementType)
		d.Element = &e
	}
	return d
}

func describeRef(r schema.TypeRef) description {
	d := describe(r.Inlined)
	if r.NamedType != nil {
		d.Type = *r.NamedType
	}
	// client-go's schema inlines some references to types without a schema.
	if d.Type == rawExtension {
		d.Type = untypedAtomic
	}
	if d.Element != nil && d.Element.Type == untypedDeduced && d.Scalar == "untyped" {
		d = description{Type: untypedDeduced}
	}
	if r.ElementRelationship != nil {
		d.Relationship = string(*r.ElementRelationship)
	}
	return d
}

func TestEveryReferenceResolves(t *testing.T) {
	var check func(where string, r schema.TypeRef)
	atom := func(where string, a schema.Atom) {
		if a.List != nil {
			check(where+"[]", a.List.ElementType)
		}
		if a.Map != nil {
			for _, f := range a.Map.Fields {
				check(where+"."+f.Name, f.Type)
			}
			if a.Map.ElementType != (schema.TypeRef{}) {
				check(where+"{}", a.Map.ElementType)
			}
		}
	}
	check = func(where string, r schema.TypeRef) {
		if _, ok := Schema().Resolve(r); !ok {
			t.Errorf("%s does not resolve", where)
		}
		atom(where, r.Inlined)
	}
	for _, def := range Schema().Types {
		atom(def.Name, def.Atom)
	}
}

func TestType(t *testing.T) {
	for _, gvk := range Kinds() {
		name, ok := TypeName(gvk)
		if !ok {
			t.Errorf("%s is not found", gvk)
		}
		if !strings.HasSuffix(name, "."+gvk.Version+"."+gvk.Kind) {
			t.Errorf("%s is a %s", gvk, name)
		}
		if parseable, ok := Type(gvk); !ok || !parseable.IsValid() {
			t.Errorf("%s has no type", gvk)
		}
	}
	for _, gvk := range []apischema.GroupVersionKind{
		{}, {Version: "v1", Kind: "Nope"}, {Group: "zzz", Version: "v1", Kind: "Pod"}, {Group: "apps", Version: "v1", Kind: "Pod"}} {
		if _, ok := Type(gvk); ok {
			t.Errorf("%s is found", gvk)
		}
	}
	for _, kind := range []string{"Pod", "Binding", "Service", "Node"} {
		if !slices.Contains(Kinds(), apischema.GroupVersionKind{Version: "v1", Kind: kind}) {
			t.Errorf("%s is missing", kind)
		}
	}
}

// A port without a protocol is the same port as one with protocol TCP.
func TestKeysHaveDefaults(t *testing.T) {
	parseable, _ := Type(apischema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	value, err := parseable.FromUnstructured(map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
		"name": "a", "ports": []any{map[string]any{"containerPort": int64(80)}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	set, err := value.ToFieldSet()
	if err != nil {
		t.Fatal(err)
	}
	port := fieldpath.MakePathOrDie("spec", "containers", fieldpath.KeyByFields("name", "a"),
		"ports", fieldpath.KeyByFields("containerPort", 80, "protocol", "TCP"), "containerPort")
	if !set.Has(port) {
		t.Errorf("%s is not in\n%s", port, set)
	}
}

// TestNothingToDoAtStart checks that the package has no initialization, which the runtime would report.
func TestNothingToDoAtStart(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	trace, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, trace)
	}
	if !strings.Contains(string(trace), "init runtime ") {
		t.Fatalf("no trace of package initialization in:\n%s", trace)
	}
	if strings.Contains(string(trace), "managedfields/mergeschema ") {
		t.Errorf("the package is initialized at start:\n%s", trace)
	}
}

// BenchmarkFirstUse measures the first lookup in a process, when the library indexes the types by name.
func BenchmarkFirstUse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		fresh := schema.Schema{Types: types}
		if _, ok := fresh.FindNamedType("io.k8s.api.core.v1.Pod"); !ok {
			b.Fatal("no Pod")
		}
	}
}
