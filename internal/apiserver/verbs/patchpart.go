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
	"skiff/internal/catalog/initializers"
)

// onNamedFields returns a merging patcher that is cheaper than whole and has the same result. A merge reads only the fields that the patch names, and
// most patches name only metadata or status: so only the root fields that are named are converted to JSON or maps, which is most of the cost of
// patching. metadata.managedFields, which is as long as the rest of the metadata, is left out too. If the patch or its result is unusual, whole gets
// the whole object and decides.
func onNamedFields(whole patcher) patcher {
	return func(api *API, live, into runtime.Object, gvk schema.GroupVersionKind, patch []byte, strictness codec.Strictness, in **initializers.Initializers) (string, []error, error) {
		named, ok := namedFields(patch, into)
		if _, has := into.(catalog.Object); !ok || !has || reflect.TypeOf(live) != reflect.TypeOf(into) || in != nil {
			return whole(api, live, into, gvk, patch, strictness, in)
		}
		part, rest := reflect.New(reflect.TypeOf(into).Elem()), live.DeepCopyObject()
		to, from := part.Elem(), reflect.ValueOf(rest).Elem()
		for _, field := range named {
			to.Field(field).Set(from.Field(field))
		}
		meta := part.Interface().(catalog.Object)
		managed := meta.GetManagedFields()
		meta.SetManagedFields(nil)
		resultText, strict, err := whole(api, part.Interface().(runtime.Object), into, gvk, patch, strictness, nil)
		if err != nil || len(strict) > 0 {
			reflect.ValueOf(into).Elem().SetZero()
			return whole(api, live, into, gvk, patch, strictness, nil)
		}
		for _, field := range named {
			from.Field(field).Set(reflect.ValueOf(into).Elem().Field(field))
		}
		reflect.ValueOf(into).Elem().Set(from)
		if managed != nil {
			into.(catalog.Object).SetManagedFields(managed)
		}
		return resultText, nil, nil
	}
}

// namedFields returns the indexes of the fields of an object's type that a patch names at its root; false if the patch may concern other fields.
func namedFields(patch []byte, obj runtime.Object) ([]int, bool) {
	var root map[string]rawJSON
	if kjson.UnmarshalCaseSensitivePreserveInts(patch, &root) != nil {
		return nil, false
	}
	known := rootFields(reflect.TypeOf(obj).Elem())
	var named []int
	for name, value := range root {
		field, ok := known[name]
		if !ok || value[0] != '{' || slices.ContainsFunc(wholeObjectWords, func(s string) bool { return bytes.Contains(value, []byte(s)) }) {
			return nil, false
		}
		named = append(named, field)
	}
	return named, true
}

// wholeObjectWords are the words with which a patch may concern fields that onNamedFields leaves out.
var wholeObjectWords = []string{"managedFields", "$patch", "$retainKeys"}

// rawJSON is a JSON value that is not decoded.
type rawJSON []byte

func (r *rawJSON) UnmarshalJSON(data []byte) error {
	*r = append((*r)[:0], data...)
	return nil
}

var rootFieldsOf sync.Map // reflect.Type to map[string]int

// rootFields returns the indexes of the root fields of a type by their JSON names, without kind and apiVersion.
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
