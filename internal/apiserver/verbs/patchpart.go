package verbs

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"skiff/internal/apiserver/codec"
	"skiff/internal/catalog"
)

// onPart makes a merging patcher cheaper. A merge looks only at those fields of an object that the patch names, and most patches are about
// the metadata or the status alone: so only the fields that are named at the root go through JSON or maps, which is what patching costs.
// What managers manage, as long as the rest of the metadata, is left out likewise. Where anything is unusual, in the patch or
// in what comes of it, the patcher gets the whole object, and says whatever it has to say of that.
func onPart(whole patcher) patcher {
	return func(api *API, live, into runtime.Object, gvk schema.GroupVersionKind, patch []byte, strictness codec.Strictness) (string, []error, error) {
		named, ok := namedFields(patch, into)
		if _, has := into.(catalog.Object); !ok || !has || reflect.TypeOf(live) != reflect.TypeOf(into) {
			return whole(api, live, into, gvk, patch, strictness)
		}
		part, rest := reflect.New(reflect.TypeOf(into).Elem()), live.DeepCopyObject()
		to, from := part.Elem(), reflect.ValueOf(rest).Elem()
		for _, field := range named {
			to.Field(field).Set(from.Field(field))
		}
		meta := part.Interface().(catalog.Object)
		managed := meta.GetManagedFields()
		meta.SetManagedFields(nil)
		shown, strict, err := whole(api, part.Interface().(runtime.Object), into, gvk, patch, strictness)
		if err != nil || len(strict) > 0 {
			reflect.ValueOf(into).Elem().SetZero()
			return whole(api, live, into, gvk, patch, strictness)
		}
		for _, field := range named {
			from.Field(field).Set(reflect.ValueOf(into).Elem().Field(field))
		}
		reflect.ValueOf(into).Elem().Set(from)
		if managed != nil {
			into.(catalog.Object).SetManagedFields(managed)
		}
		return shown, nil, nil
	}
}

// namedFields are the fields of an object's type that a patch names at its root. It is false if the patch may be about anything else.
func namedFields(patch []byte, obj runtime.Object) ([]int, bool) {
	var root map[string]rawJSON
	if kjson.UnmarshalCaseSensitivePreserveInts(patch, &root) != nil {
		return nil, false
	}
	known := rootFields(reflect.TypeOf(obj).Elem())
	var named []int
	for name, value := range root {
		field, ok := known[name]
		if !ok || value[0] != '{' || slices.ContainsFunc(aboutWhole, func(s string) bool { return bytes.Contains(value, []byte(s)) }) {
			return nil, false
		}
		named = append(named, field)
	}
	return named, true
}

// aboutWhole are words of a patch that may be about what is left out.
var aboutWhole = []string{"managedFields", "$patch", "$retainKeys"}

// rawJSON is JSON that is not looked into.
type rawJSON []byte

func (r *rawJSON) UnmarshalJSON(data []byte) error {
	*r = append((*r)[:0], data...)
	return nil
}

var rootFieldsOf sync.Map // reflect.Type to map[string]int

// rootFields are the fields of a kind by their names in JSON, kind and apiVersion left out.
func rootFields(kind reflect.Type) map[string]int {
	if known, ok := rootFieldsOf.Load(kind); ok {
		return known.(map[string]int)
	}
	fields := map[string]int{}
	for i := range kind.NumField() {
		if name, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
			fields[name] = i
		}
	}
	rootFieldsOf.Store(kind, fields)
	return fields
}
