package mutating

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	fields "k8s.io/apimachinery/pkg/util/managedfields"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	kjson "sigs.k8s.io/json"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/policy/evaluate"
	"skiff/internal/apiserver/managedfields"
	"skiff/internal/catalog"
)

// mutate applies one mutation of a policy, and reports whether it changed the object.
func (e *evaluation) mutate(ctx context.Context, v *evaluate.Version, c *compiled, m *mutation, in *invocation) (bool, error) {
	obj := v.Object()
	gvk := v.KindOf(obj)
	types := e.types(gvk)
	if types == nil {
		return false, apierrors.NewServiceUnavailable(fmt.Sprintf("Resource kind %s not found. There can be a delay between when CustomResourceDefinitions are created and when they are available.", gvk))
	}
	if err := m.expression[0].Error; err != nil {
		return false, err
	}
	inputs := evaluate.Inputs{Params: in.param.CELValue(), Authorizer: true, Namespace: true, Matched: true, Plain: true}
	results, _, err := v.Run(ctx, m.expression, c.variables, inputs, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return false, err
	}
	if results[0].Err != nil {
		return false, results[0].Err
	}
	content, err := evaluate.Content(obj, gvk)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	if m.patch {
		content, err = applyJSONPatch(content, results[0].Value)
	} else {
		content, err = applyConfiguration(types, content, results[0].Value)
	}
	if err != nil {
		return false, err
	}
	return e.replace(ctx, obj, content, in.matched, m.patch)
}

// types returns the schema of a kind; nil if it is unknown.
func (e *evaluation) types(gvk schema.GroupVersionKind) fields.TypeConverter {
	if e.subject.Object == nil || managedfields.Knows(gvk) || e.source.Types == nil {
		return managedfields.Types()
	}
	return e.source.Types(gvk)
}

// replace makes content, of the version that a policy matched, the object of the write, and reports whether that changed it. The request holds the object by
// its pointer: what that points at is replaced.
func (e *evaluation) replace(ctx context.Context, old runtime.Object, content map[string]any, matched *catalog.Info, strict bool) (bool, error) {
	a := e.subject.Attributes
	if rooted, ok := old.(admission.Rooted); ok {
		return e.replaceRoot(ctx, rooted, content, matched)
	}
	obj, err := decode(old, content, strict)
	if err != nil {
		return false, err
	}
	obj.GetObjectKind().SetGroupVersionKind(old.GetObjectKind().GroupVersionKind())
	if a.Object == nil {
		assign(a.Connection, obj)
		e.request.Changed()
		return true, nil
	}
	if reflect.TypeOf(obj) == reflect.TypeOf(matched.New()) {
		matched.Default(obj)
		if written, ok := obj.(catalog.Object); ok && reflect.TypeOf(obj) != reflect.TypeOf(a.Object) {
			obj = matched.ToStored(written)
		}
	}
	if reflect.TypeOf(obj) != reflect.TypeOf(a.Object) {
		return false, apierrors.NewInternalError(fmt.Errorf("failed to convert object: a %T is no %T", obj, a.Object))
	}
	if admission.Same(obj, a.Object) {
		return false, nil
	}
	assign(a.Object, obj)
	e.request.Changed()
	return true, nil
}

// replaceRoot is replace for a custom object. Its fields may be shared with content, which becomes another object's: it is copied.
func (e *evaluation) replaceRoot(ctx context.Context, old admission.Rooted, content map[string]any, matched *catalog.Info) (bool, error) {
	before, err := old.Root()
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	if apiequality.Semantic.DeepEqual(before, content) {
		return false, nil
	}
	a := e.subject.Attributes
	target, ok := a.Object.(admission.Rooted)
	if !ok {
		return false, apierrors.NewInternalError(fmt.Errorf("failed to convert object: a %T is no %T", old, a.Object))
	}
	content = runtime.DeepCopyJSON(content)
	if runtime.Object(target) != runtime.Object(old) {
		written, ok := matched.New().(admission.Rooted)
		if !ok {
			return false, apierrors.NewInternalError(fmt.Errorf("failed to convert object: a %T is no %T", matched.New(), a.Object))
		}
		if _, err := written.SetRoot(content, false); err != nil {
			return false, apierrors.NewInternalError(err)
		}
		matched.Default(written)
		converted, err := a.Info.From(ctx, written.(catalog.Object))
		if err != nil {
			return false, apierrors.NewInternalError(err)
		}
		if content, err = converted.(admission.Rooted).Root(); err != nil {
			return false, apierrors.NewInternalError(err)
		}
		content = runtime.DeepCopyJSON(content)
	}
	if _, err := target.SetRoot(content, false); err != nil {
		return false, apierrors.NewInternalError(err)
	}
	a.Info.Stored.Default(target)
	e.request.Changed()
	return true, nil
}

func assign(to, from runtime.Object) {
	reflect.ValueOf(to).Elem().Set(reflect.ValueOf(from).Elem())
}

// decode returns content as an object of the type of old. strict refuses fields that the type does not have: a patch may have added any.
func decode(old runtime.Object, content map[string]any, strict bool) (runtime.Object, error) {
	obj := reflect.New(reflect.TypeOf(old).Elem()).Interface().(runtime.Object)
	if !strict {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, obj); err != nil {
			return nil, err
		}
		return obj, nil
	}
	encoded, err := json.Marshal(content)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	unknown, err := kjson.UnmarshalStrict(encoded, obj)
	if err == nil && len(unknown) > 0 {
		err = runtime.NewStrictDecodingError(unknown)
	}
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return obj, nil
}
