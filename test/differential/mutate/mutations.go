package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A mutation is one change to an object: the value at a path is replaced or removed.
type mutation struct {
	path  []any // string keys and int indices
	label string
	value any
	drop  bool
}

// key returns a key that is the same for mutations of the same field, whatever its indices: they need not be tried twice.
func (m mutation) key() string { return m.text(func(any) string { return "[]" }) }

func (m mutation) String() string {
	return m.text(func(index any) string { return fmt.Sprintf("[%d]", index) })
}

func (m mutation) text(index func(any) string) string {
	var b strings.Builder
	for _, p := range m.path {
		if s, ok := p.(string); ok {
			b.WriteString("." + s)
		} else {
			b.WriteString(index(p))
		}
	}
	return b.String() + " " + m.label
}

// apply changes a copy of the object.
func (m mutation) apply(obj map[string]any) (map[string]any, bool) {
	out := clone(obj)
	var at any = out
	for i, p := range m.path {
		last := i == len(m.path)-1
		switch p := p.(type) {
		case string:
			in, ok := at.(map[string]any)
			if !ok {
				return nil, false
			}
			if last && m.drop {
				delete(in, p)
			} else if last {
				in[p] = m.value
			}
			at = in[p]
		case int:
			in, ok := at.([]any)
			if !ok || p >= len(in) {
				return nil, false
			}
			if last {
				in[p] = m.value
			}
			at = in[p]
		}
	}
	return out, true
}

// clone returns a deep copy of an object.
func clone(obj map[string]any) (out map[string]any) {
	data, err := json.Marshal(obj)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		panic(err) // cannot happen: the object came as JSON
	}
	return out
}

// A change is one or more mutations that are applied together.
type change []mutation

func (c change) apply(obj map[string]any) (map[string]any, bool) {
	ok := true
	for _, m := range c {
		if obj, ok = m.apply(obj); !ok {
			return nil, false
		}
	}
	return obj, true
}

func (c change) String() string {
	var texts []string
	for _, m := range c {
		texts = append(texts, m.String())
	}
	return strings.Join(texts, " and ")
}

// server lists the fields of metadata that only the server writes.
var server = []string{"managedFields", "uid", "resourceVersion", "creationTimestamp", "selfLink", "generation"}

type walker struct{ out []mutation }

// mutationsOf returns all mutations of an object of a Go type.
func mutationsOf(obj map[string]any, t reflect.Type) []mutation {
	w := &walker{}
	w.object(obj, t, nil)
	return w.out
}

func (w *walker) emit(path []any, label string, value any) {
	w.out = append(w.out, mutation{path: slices.Clone(path), label: label, value: value})
}

func (w *walker) object(obj map[string]any, t reflect.Type, path []any) {
	for _, f := range fieldsOf(t) {
		if len(path) == 0 && (f.name == "apiVersion" || f.name == "kind") {
			continue
		}
		if len(path) == 1 && path[0] == "metadata" && slices.Contains(server, f.name) {
			continue
		}
		at := append(slices.Clone(path), f.name)
		v, present := obj[f.name]
		if !present {
			for i, s := range samples(f.t, 2) {
				w.emit(at, fmt.Sprintf("added %d", i), s)
			}
			continue
		}
		w.out = append(w.out, mutation{path: at, label: "dropped", drop: true})
		w.value(v, f.t, at)
	}
	w.emit(append(slices.Clone(path), "noSuchField"), "unknown", "x")
}

func (w *walker) value(v any, t reflect.Type, path []any) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	w.emit(path, "null", nil)
	switch v := v.(type) {
	case map[string]any:
		w.emit(path, "empty", map[string]any{})
		w.emit(path, "text instead", "x")
		switch t.Kind() {
		case reflect.Struct:
			w.object(v, t, path)
		case reflect.Map:
			for i, s := range samples(t.Elem(), 1) {
				for _, k := range []string{"bad key!", "example.com/" + strings.Repeat("k", 64), "", "kubernetes.io/x", "x"} {
					w.emit(append(slices.Clone(path), k), fmt.Sprintf("added key %q %d", k, i), s)
				}
			}
			for k, e := range v {
				w.value(e, t.Elem(), append(slices.Clone(path), k))
			}
		}
	case []any:
		w.emit(path, "none", []any{})
		w.emit(path, "text instead", "x")
		if len(v) > 0 {
			w.emit(path, "first twice", append([]any{v[0]}, v...))
			w.emit(path, "reversed", reversed(v))
		}
		if t.Kind() != reflect.Slice {
			return
		}
		for i, s := range samples(t.Elem(), 1) {
			w.emit(path, fmt.Sprintf("appended %d", i), append(slices.Clone(v), s))
		}
		for i, e := range v {
			if i < 2 {
				w.value(e, t.Elem(), append(slices.Clone(path), i))
			}
		}
	case string:
		for _, s := range []string{"", "x", "Bad_Value!", strings.Repeat("a", 300), "-", "ü", " x", "0", "-1", "1.5", "10.0.0.1", "x/y", "x.y", "X", "../x", "*", "50%", v + v} {
			w.emit(path, fmt.Sprintf("text %.20q", s), s)
		}
		w.emit(path, "number instead", 7)
	case bool:
		w.emit(path, "other", !v)
		w.emit(path, "text instead", "x")
	default:
		for _, n := range []any{-1, 0, 1, 101, 70000, 2147483647, 2147483648, int64(1) << 62, "x", 1.5} {
			w.emit(path, fmt.Sprintf("number %v", n), n)
		}
	}
}

func reversed(v []any) []any {
	out := slices.Clone(v)
	slices.Reverse(out)
	return out
}

type structField struct {
	name string
	t    reflect.Type
}

// fieldsOf returns the fields of a struct with their JSON names.
func fieldsOf(t reflect.Type) (out []structField) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case !f.IsExported() || name == "-":
		case name == "" && f.Anonymous || name == "" && strings.Contains(f.Tag.Get("json"), "inline"):
			out = append(out, fieldsOf(f.Type)...)
		case name != "":
			out = append(out, structField{name, f.Type})
		}
	}
	return out
}

var (
	timeType     = reflect.TypeFor[metav1.Time]()
	microType    = reflect.TypeFor[metav1.MicroTime]()
	quantityType = reflect.TypeFor[resource.Quantity]()
	durationType = reflect.TypeFor[metav1.Duration]()
	intstrType   = reflect.TypeFor[intstr.IntOrString]()
	rawType      = reflect.TypeFor[runtime.RawExtension]()
	bytesType    = reflect.TypeFor[[]byte]()
)

// samples returns values for a field that the object does not have.
func samples(t reflect.Type, depth int) []any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case timeType:
		return []any{"2020-01-02T03:04:05Z"}
	case microType:
		return []any{"2020-01-02T03:04:05.000006Z"}
	case quantityType:
		return []any{"1", "-1", "1500m"}
	case durationType:
		return []any{"1s", "-1s"}
	case intstrType:
		return []any{1, -1, "50%", "x"}
	case rawType:
		return []any{map[string]any{"a": "b"}}
	case bytesType:
		return []any{"eA==", "!"}
	}
	switch t.Kind() {
	case reflect.String:
		return []any{"x", "", "Bad_Value!"}
	case reflect.Bool:
		return []any{true, false}
	case reflect.Struct:
		out := []any{map[string]any{}}
		if depth > 0 {
			all := map[string]any{}
			for _, f := range fieldsOf(t) {
				one := map[string]any{}
				if s := samples(f.t, depth-1); len(s) > 0 {
					one[f.name], all[f.name] = s[0], s[0]
				}
				out = append(out, one)
			}
			out = append(out, all)
		}
		return out
	case reflect.Slice:
		out := []any{[]any{}}
		for _, s := range samples(t.Elem(), depth-1) {
			out = append(out, []any{s})
		}
		return out
	case reflect.Map:
		out := []any{map[string]any{}}
		for _, s := range samples(t.Elem(), depth-1) {
			out = append(out, map[string]any{"x": s}, map[string]any{"bad key!": s})
		}
		return out
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return []any{1, -1, 0, 70000}
	case reflect.Float32, reflect.Float64:
		return []any{1.5}
	}
	return nil
}
