package managedfields

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"skiff/internal/apiserver/managedfields/mergeschema"
)

// types converts objects to typed values by the merge schema of the built-in kinds.
var types typeConverter

// Types returns the schema by which objects of the built-in kinds are merged.
func Types() managedfields.TypeConverter { return types }

// Knows reports whether a kind is in the schema.
func Knows(gvk schema.GroupVersionKind) bool {
	_, ok := mergeschema.Type(gvk)
	return ok
}

type typeConverter struct{}

// ObjectToTyped returns the typed value of an object, which must have its kind set.
func (typeConverter) ObjectToTyped(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	gvk := obj.GetObjectKind().GroupVersionKind()
	t, ok := mergeschema.Type(gvk)
	if !ok {
		return nil, fmt.Errorf("no corresponding type for %v", gvk)
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return t.FromUnstructured(u.UnstructuredContent(), opts...)
	}
	return t.FromStructured(obj, opts...)
}

// TypedToObject returns an unstructured object.
func (typeConverter) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	content, ok := value.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("an object cannot be a %T", value.AsValue().Unstructured())
	}
	return &unstructured.Unstructured{Object: content}, nil
}
