package webhook

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/patchlimits"
	"skiff/internal/catalog"
)

// apply applies a patch to the object in a form: it decodes the result, without unknown fields, sets defaults and changes the object of the request in
// place. It reports whether the patch has changed anything.
func (r *request) apply(ctx context.Context, f *form, patch jsonpatch.Patch) (bool, error) {
	before, err := f.objectJSON()
	if err != nil {
		return false, err
	}
	after, err := applyPatch(before, patch)
	if err != nil {
		return false, err
	}
	if kind, err := codec.KindOf(after); err != nil {
		return false, err
	} else if kind != f.kind {
		return false, fmt.Errorf("converting (%s.%s) to (%s.%s): unknown conversion", kind.Version, kind.Kind, f.kind.Version, f.kind.Kind)
	}
	if custom, ok := objectOf(r.Attributes).(admission.Rooted); ok {
		return r.applyCustom(ctx, f, custom, after)
	}
	patched := newLike(f.object)
	if err := kjson.UnmarshalCaseSensitivePreserveInts(after, patched); err != nil {
		return false, err
	}
	patched.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	changed := !apiequality.Semantic.DeepEqual(f.object, patched)
	if r.ownKind {
		f.info.Default(patched)
		patched = f.info.ToStored(patched.(catalog.Object))
	}
	set(objectOf(r.Attributes), patched)
	r.changed()
	return changed, nil
}

// applyCustom does the part of apply that follows patching for a custom object. The result is decoded in the version of the form, and converted back.
func (r *request) applyCustom(ctx context.Context, f *form, obj admission.Rooted, after []byte) (bool, error) {
	patched := f.info.New().(catalog.Object)
	if err := kjson.UnmarshalCaseSensitivePreserveInts(after, patched); err != nil {
		return false, err
	}
	f.info.Default(patched)
	if admission.Same(f.object, patched) {
		return false, nil
	}
	written, err := r.Info.From(ctx, patched)
	if err != nil {
		return false, err
	}
	root, err := written.(admission.Rooted).Root()
	if err != nil {
		return false, err
	}
	if _, err := obj.SetRoot(runtime.DeepCopyJSON(root), false); err != nil {
		return false, err
	}
	r.Info.Default(obj)
	r.changed()
	return true, nil
}

// applyPatch applies a patch within the limits for patches of clients.
func applyPatch(before []byte, patch jsonpatch.Patch) ([]byte, error) {
	if len(patch) > patchlimits.Operations {
		return nil, fmt.Errorf("the allowed maximum operations in a JSON patch is %d, got %d", patchlimits.Operations, len(patch))
	}
	for _, operation := range patch {
		path, _ := operation.Path()
		from, _ := operation.From()
		if max(strings.Count(path, "/"), strings.Count(from, "/")) > patchlimits.Depth {
			return nil, fmt.Errorf("the patch reaches deeper than %d levels", patchlimits.Depth)
		}
	}
	patchlimits.BoundCopies()
	return patch.Apply(before)
}

// newLike returns an empty object of the same type.
func newLike(obj runtime.Object) runtime.Object {
	return reflect.New(reflect.TypeOf(obj).Elem()).Interface().(runtime.Object)
}

// set replaces the content of an object: whoever has the object sees the new one.
func set(obj, content runtime.Object) {
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(content).Elem())
}
