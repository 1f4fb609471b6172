package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/schemaconv"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"

	"skiff/internal/apiserver/openapi/gen/definitions"
	"skiff/internal/apiserver/openapi/routes"
)

// writeMergeSchema writes the structured-merge-diff types of every kind that can be written, and of all types they contain,
// as Go literals that need no initialization at start: one file per API package.
func writeMergeSchema(folder string, endpoints []*routes.Endpoint, names namer) error {
	roots := mergeRoots(endpoints)
	types, err := mergeTypes(roots, names)
	if err != nil {
		return err
	}
	w := &literals{files: map[string]*bytes.Buffer{}}
	for _, t := range types {
		w.typeDef(t)
	}
	w.index(types, roots)
	return w.write(folder)
}

// mergeRoots returns the definition of each kind that an endpoint reads and writes.
func mergeRoots(endpoints []*routes.Endpoint) map[schema.GroupVersionKind]string {
	roots := map[schema.GroupVersionKind]string{}
	for _, e := range endpoints {
		if e.Model != "" {
			roots[e.Kind] = string(e.Model)
		}
	}
	return roots
}

func mergeTypes(roots map[schema.GroupVersionKind]string, names namer) ([]smd.TypeDef, error) {
	models, err := builder3.BuildOpenAPIDefinitionsForResources(&common.OpenAPIV3Config{
		GetDefinitions:    definitions.GetOpenAPIDefinitions,
		GetDefinitionName: names.definition,
	}, slices.Collect(mapValues(roots))...)
	if err != nil {
		return nil, err
	}
	converted, err := schemaconv.ToSchemaFromOpenAPI(models, false)
	if err != nil {
		return nil, err
	}
	types := converted.Types
	sort.Slice(types, func(i, j int) bool { return types[i].Name < types[j].Name })
	for _, t := range types {
		sortFields(t.Atom)
	}
	return types, nil
}

func sortFields(a smd.Atom) {
	if a.Map != nil {
		sort.Slice(a.Map.Fields, func(i, j int) bool { return a.Map.Fields[i].Name < a.Map.Fields[j].Name })
		for _, f := range a.Map.Fields {
			sortFields(f.Type.Inlined)
		}
		sortFields(a.Map.ElementType.Inlined)
	}
	if a.List != nil {
		sortFields(a.List.ElementType.Inlined)
	}
}

func mapValues[K comparable, V any](m map[K]V) func(func(V) bool) {
	return func(yield func(V) bool) {
		for _, v := range m {
			if !yield(v) {
				return
			}
		}
	}
}

// literals collects Go source, one file per API package.
type literals struct {
	files map[string]*bytes.Buffer
}

func (w *literals) file(name string) *bytes.Buffer {
	if w.files[name] == nil {
		w.files[name] = &bytes.Buffer{}
	}
	return w.files[name]
}

// typeDef writes the name of a type, so that others can point to it, and its fields.
func (w *literals) typeDef(t smd.TypeDef) {
	pkg, _ := goName(t.Name)
	b := w.file(pkg)
	fmt.Fprintf(b, "var %s = %q\n\n", variable(t.Name), t.Name)
	if t.Map != nil {
		fmt.Fprintf(b, "var %sMap = %s\n\n", variable(t.Name), mapLiteral(t.Map))
	}
}

// index writes the list of types and the table of kinds, both sorted for binary search.
func (w *literals) index(types []smd.TypeDef, roots map[schema.GroupVersionKind]string) {
	b := w.file("index")
	b.WriteString("var types = []typeDef{\n")
	for _, t := range types {
		fmt.Fprintf(b, "{Name: %q, Atom: atom{", t.Name)
		if t.Scalar != nil {
			fmt.Fprintf(b, "Scalar: %s, ", scalar(*t.Scalar))
		}
		if t.List != nil {
			fmt.Fprintf(b, "List: &%s, ", listLiteral(t.List))
		}
		if t.Map != nil {
			fmt.Fprintf(b, "Map: &%sMap, ", variable(t.Name))
		}
		b.WriteString("}},\n")
	}
	b.WriteString("}\n\nvar kinds = []kind{\n")
	gvks := make([]schema.GroupVersionKind, 0, len(roots))
	for gvk := range roots {
		gvks = append(gvks, gvk)
	}
	sort.Slice(gvks, func(i, j int) bool {
		a, b := gvks[i], gvks[j]
		return slices.Compare([]string{a.Group, a.Version, a.Kind}, []string{b.Group, b.Version, b.Kind}) < 0
	})
	for _, gvk := range gvks {
		fmt.Fprintf(b, "{%q, %q, %q, &%s},\n", gvk.Group, gvk.Version, gvk.Kind, variable(roots[gvk]))
	}
	b.WriteString("}\n")
	for _, r := range []smd.ElementRelationship{smd.Atomic, smd.Separable, smd.Associative} {
		if w.uses("&" + string(r) + "Relationship") {
			fmt.Fprintf(b, "\nvar %sRelationship relationship = %q\n", r, r)
		}
	}
}

func (w *literals) uses(word string) bool {
	for _, b := range w.files {
		if bytes.Contains(b.Bytes(), []byte(word)) {
			return true
		}
	}
	return false
}

func (w *literals) write(folder string) error {
	old, err := filepath.Glob(filepath.Join(folder, "zz_generated_*.go"))
	if err != nil {
		return err
	}
	for _, file := range old {
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	for _, name := range sortedKeys(w.files) {
		source := generated + "package mergeschema\n\n" + w.files[name].String()
		if err := writeGo(filepath.Join(folder, "zz_generated_"+name+".go"), []byte(source)); err != nil {
			return err
		}
	}
	return nil
}

func mapLiteral(m *smd.Map) string {
	var b strings.Builder
	b.WriteString("object{")
	if len(m.Fields) > 0 {
		b.WriteString("Fields: []field{\n")
		for _, f := range m.Fields {
			fmt.Fprintf(&b, "{Name: %q, Type: %s%s},\n", f.Name, typeLiteral(f.Type), defaultLiteral(f.Default))
		}
		b.WriteString("}, ")
	}
	if m.ElementType != (smd.TypeRef{}) {
		fmt.Fprintf(&b, "ElementType: %s, ", typeLiteral(m.ElementType))
	}
	if m.ElementRelationship != "" {
		fmt.Fprintf(&b, "ElementRelationship: %q", m.ElementRelationship)
	}
	b.WriteString("}")
	return b.String()
}

func listLiteral(l *smd.List) string {
	var b strings.Builder
	fmt.Fprintf(&b, "list{ElementType: %s, ElementRelationship: %q", typeLiteral(l.ElementType), l.ElementRelationship)
	if len(l.Keys) > 0 {
		fmt.Fprintf(&b, ", Keys: %#v", l.Keys)
	}
	b.WriteString("}")
	return b.String()
}

func typeLiteral(t smd.TypeRef) string {
	var b strings.Builder
	b.WriteString("ref{")
	if t.NamedType != nil {
		fmt.Fprintf(&b, "NamedType: &%s", variable(*t.NamedType))
	} else {
		b.WriteString("Inlined: atom{")
		if t.Inlined.Scalar != nil {
			fmt.Fprintf(&b, "Scalar: %s, ", scalar(*t.Inlined.Scalar))
		}
		if t.Inlined.List != nil {
			fmt.Fprintf(&b, "List: &%s, ", listLiteral(t.Inlined.List))
		}
		if t.Inlined.Map != nil {
			fmt.Fprintf(&b, "Map: &%s", mapLiteral(t.Inlined.Map))
		}
		b.WriteString("}")
	}
	if t.ElementRelationship != nil {
		fmt.Fprintf(&b, ", ElementRelationship: &%sRelationship", *t.ElementRelationship)
	}
	if t.Nullable {
		b.WriteString(", Nullable: true")
	}
	b.WriteString("}")
	return b.String()
}

// defaultLiteral returns the literal of a scalar default, empty for others. Merging needs only the defaults of the keys of
// associative lists, which are scalars; the rest ({} for every struct) would cost memory and initialization for nothing.
func defaultLiteral(value any) string {
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.String:
		return fmt.Sprintf(", Default: %q", v.String())
	case reflect.Bool, reflect.Int:
		return fmt.Sprintf(", Default: %v", v)
	case reflect.Float64:
		return fmt.Sprintf(", Default: float64(%v)", v)
	default:
		return ""
	}
}

func scalar(s smd.Scalar) string {
	return "&" + string(s) + "Scalar"
}

// goName splits a type name into its package, as a part of a file name, and the name of the type.
// io.k8s.api.core.v1.Pod is core_v1 and Pod.
func goName(name string) (pkg, typeName string) {
	if strings.HasPrefix(name, "__") {
		return "index", strings.Trim(name, "_")
	}
	parts := strings.Split(name, ".")
	n := len(parts)
	return parts[n-3] + "_" + parts[n-2], parts[n-1]
}

// variable returns the Go variable that holds a type's name.
func variable(name string) string {
	if special, ok := map[string]string{"__untyped_atomic_": "untypedAtomic", "__untyped_deduced_": "untypedDeduced"}[name]; ok {
		return special
	}
	pkg, typeName := goName(name)
	group, version, _ := strings.Cut(pkg, "_")
	return strings.ReplaceAll(group, "-", "") + upperFirst(version) + typeName
}

func upperFirst(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
