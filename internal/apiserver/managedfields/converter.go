package managedfields

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/catalog"
)

// converter converts between the versions in which one kind is served. It is the part of a scheme that the library needs.
type converter struct {
	ctx   context.Context // in which conversion webhooks are called: the library passes none
	infos map[schema.GroupVersion]*catalog.Info
}

func (f *converter) info(gv schema.GroupVersion) (*catalog.Info, error) {
	if i := f.infos[gv]; i != nil {
		return i, nil
	}
	return nil, runtime.NewNotRegisteredGVKErrForTarget("skiff", schema.GroupVersionKind{Group: gv.Group, Version: gv.Version}, nil)
}

// ConvertToVersion returns a typed object of the target version.
func (f *converter) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	gv, ok := target.(schema.GroupVersion)
	if !ok {
		return nil, fmt.Errorf("cannot convert to %v", target)
	}
	from := in.GetObjectKind().GroupVersionKind()
	if u, ok := in.(*unstructured.Unstructured); ok {
		info, err := f.info(from.GroupVersion())
		if err != nil {
			return nil, err
		}
		if info.JSONOnly {
			if in, err = fromRoot(info, u.Object); err != nil {
				return nil, err
			}
			return f.ConvertToVersion(in, target)
		}
		obj := info.New()
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj); err != nil {
			return nil, fmt.Errorf("unable to convert unstructured object to %v: %w", info.GVK, err)
		}
		obj.GetObjectKind().SetGroupVersionKind(info.GVK)
		in = obj
	}
	if from.GroupVersion() == gv {
		return in, nil
	}
	source, err := f.info(from.GroupVersion())
	if err != nil {
		return nil, err
	}
	wanted, err := f.info(gv)
	if err != nil {
		return nil, err
	}
	out, err := wanted.From(f.ctx, source.ToStored(in.(catalog.Object)))
	if err != nil {
		return nil, err
	}
	out.GetObjectKind().SetGroupVersionKind(wanted.GVK)
	return out, nil
}

// Convert is part of runtime.ObjectConvertor; the library does not call it.
func (f *converter) Convert(in, out, context any) error {
	return fmt.Errorf("cannot convert %T to %T", in, out)
}

// ConvertFieldLabel is part of runtime.ObjectConvertor; the library does not call it.
func (f *converter) ConvertFieldLabel(gvk schema.GroupVersionKind, label, value string) (string, string, error) {
	return "", "", fmt.Errorf("field labels of %s are not converted here", gvk)
}

// Default applies the defaults to an object after an apply.
func (f *converter) Default(in runtime.Object) {
	if info, err := f.info(in.GetObjectKind().GroupVersionKind().GroupVersion()); err == nil {
		info.Default(in)
	}
}

// New returns an empty object.
func (f *converter) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	info, err := f.info(gvk.GroupVersion())
	if err != nil {
		return nil, err
	}
	obj := info.New()
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	return obj, nil
}
