package managedfields

import (
	"reflect"
	"slices"
	"testing"

	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"skiff/internal/apiserver/managedfields/mergeschema"
	"skiff/internal/catalog/all"
)

// TestTypesFitTheSchema checks that the Go types match the schema, which the fast path relies on. The library gives up on objects with list
// items that have no key; the kinds that can have such items, and only they, are left to it.
func TestTypesFitTheSchema(t *testing.T) {
	var left []string
	for _, info := range all.Resources() {
		typ, ok := mergeschema.Type(info.GVK)
		if !ok || info.Virtual {
			continue
		}
		f := fit{t, map[partKey]bool{}, false}
		f.walk(info.GVK.Kind, reflect.TypeOf(info.New()).Elem(), typ.TypeRef)
		k := newKind(info, nil)
		switch {
		case f.keyless != (k == nil):
			t.Errorf("%s: items without keys: %v; left to the library: %v", info.GVK.Kind, f.keyless, k == nil)
		case k == nil:
			left = append(left, info.GVK.Kind)
		case k.all.any(map[*part]bool{}, func(p *part) bool { return p.kind == foreign }):
			t.Errorf("%s has parts that are not known", info.GVK.Kind)
		}
	}
	slices.Sort(left)
	if want := []string{"FlowSchema", "PriorityLevelConfiguration", "ServiceAccount"}; !slices.Equal(left, want) {
		t.Errorf("%v are left to the library, want %v", left, want)
	}
}

type fit struct {
	*testing.T
	seen    map[partKey]bool
	keyless bool
}

func (f *fit) walk(path string, t reflect.Type, ref schema.TypeRef) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	atom, ok := mergeschema.Schema().Resolve(ref)
	if !ok {
		f.Errorf("%s has no type", path)
		return
	}
	if ref.NamedType != nil {
		key := partKey{t: t, name: *ref.NamedType}
		if f.seen[key] {
			return
		}
		f.seen[key] = true
	}
	entry := value.TypeReflectEntryOf(t)
	switch {
	case entry.CanConvertToUnstructured():
		if t.Kind() != reflect.Struct {
			f.Errorf("%s: %s writes its own JSON, but seems plain", path, t)
		}
	case t.Kind() == reflect.Struct && atom.Map != nil:
		for name, field := range entry.Fields() {
			sf, known := atom.Map.FindField(name)
			if !known {
				f.Errorf("%s.%s is not in the schema", path, name)
				continue
			}
			f.walk(path+"."+name, field.GetFrom(reflect.New(t).Elem()).Type(), sf.Type)
		}
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String && atom.Map != nil:
		f.walk(path+"[]", t.Elem(), atom.Map.ElementType)
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 && atom.List != nil:
		if len(atom.List.Keys) > 0 {
			parts.mu.Lock()
			f.keyless = f.keyless || parts.buildKeyed(t.Elem(), atom.List).keyless
			parts.mu.Unlock()
		}
		f.walk(path+"[]", t.Elem(), atom.List.ElementType)
	case atom.Scalar != nil && t.Kind() != reflect.Struct && t.Kind() != reflect.Map:
	default:
		f.Errorf("%s: %s does not fit the schema", path, t)
	}
}
