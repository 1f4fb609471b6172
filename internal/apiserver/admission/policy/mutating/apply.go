package mutating

import (
	"fmt"
	"strings"

	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// applyConfiguration returns the content of an object with an apply configuration, the value of an expression, merged in by the schema of its kind. It does
// not track who owns the fields.
func applyConfiguration(types managedfields.TypeConverter, content map[string]any, v ref.Val) (map[string]any, error) {
	object, ok := v.(*dynamic.ObjectVal)
	if !ok {
		return nil, fmt.Errorf("unsupported return type from ApplyConfiguration expression: %v", v.Type())
	}
	if err := object.CheckTypeNamesMatchFieldPathNames(); err != nil {
		return nil, fmt.Errorf("type mismatch: %w", err)
	}
	fields, ok := object.Value().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("invalid return type: %T", v)
	}
	live := &unstructured.Unstructured{Object: content}
	configuration := &unstructured.Unstructured{Object: fields}
	configuration.SetGroupVersionKind(live.GroupVersionKind())
	merged, err := merge(types, live, configuration)
	if err != nil {
		return nil, fmt.Errorf("error applying patch: %w", err)
	}
	return merged, nil
}

func merge(types managedfields.TypeConverter, live, configuration *unstructured.Unstructured) (map[string]any, error) {
	patch, err := types.ObjectToTyped(configuration)
	if err != nil {
		return nil, fmt.Errorf("failed to convert patch object to typed object: %w", err)
	}
	if atomics := findAtomics(nil, patch.Schema(), patch.TypeRef(), patch.AsValue()); len(atomics) > 0 {
		return nil, fmt.Errorf("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: %v", strings.Join(atomics, ", "))
	}
	original, err := types.ObjectToTyped(live, typed.AllowDuplicates)
	if err != nil {
		return nil, fmt.Errorf("failed to convert original object to typed object: %w", err)
	}
	merged, err := original.Merge(patch)
	if err != nil {
		return nil, fmt.Errorf("failed to merge patch: %w", err)
	}
	obj, err := types.TypedToObject(merged)
	if err != nil {
		return nil, fmt.Errorf("failed to convert typed object to object: %w", err)
	}
	result, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("failed to convert typed object to object: it is a %T", obj)
	}
	return result.Object, nil
}

// findAtomics returns the paths of all parts of a configuration that would be replaced as a whole. Setting one field of such a part would remove all others,
// which nobody intends.
func findAtomics(path fieldpath.Path, s *schema.Schema, t schema.TypeRef, v value.Value) []string {
	atom, ok := s.Resolve(t)
	if !ok {
		return nil
	}
	var found []string
	if atom.Map != nil && v.IsMap() {
		if atom.Map.ElementRelationship == schema.Atomic {
			found = append(found, path.String())
		}
		v.AsMap().Iterate(func(key string, item value.Value) bool {
			if f, ok := atom.Map.FindField(key); ok {
				found = append(found, findAtomics(append(path, fieldpath.PathElement{FieldName: &key}), s, f.Type, item)...)
			}
			return true
		})
	}
	if atom.List != nil && v.IsList() {
		if atom.List.ElementRelationship == schema.Atomic {
			found = append(found, path.String())
		}
		list := v.AsList()
		for i := range list.Length() {
			found = append(found, findAtomics(append(path, fieldpath.PathElement{Index: &i}), s, atom.List.ElementType, list.At(i))...)
		}
	}
	return found
}
