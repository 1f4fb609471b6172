package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/registry"
	"skiff/internal/catalog"
)

// maxPatchOperations bounds a JSON patch.
const maxPatchOperations = 10000

var patchTypes = []string{
	string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType), string(types.ApplyYAMLPatchType)}

// patch changes an object by a patch of one of four kinds.
func (rq *request) patch() error {
	contentType, _, _ := strings.Cut(rq.Header.Get("Content-Type"), ";")
	kind := types.PatchType(strings.TrimSpace(contentType))
	apply, known := patchers[kind]
	if !known && kind != types.ApplyYAMLPatchType {
		return codec.UnsupportedMedia(patchTypes...)
	}
	opts, err := rq.writeOptions("PatchOptions", kind)
	if err != nil {
		return err
	}
	rq.trace.Stage("decode")
	patch, err := rq.body()
	if err != nil {
		return err
	}
	u := registry.Update{Namespace: rq.route.namespace, Name: rq.route.name, Edit: rq.end.edit(rq.route.subresource),
		Unconditional: true, Write: rq.write(opts.dryRun, rq.validateUpdate(opts.dryRun))}
	if kind == types.ApplyYAMLPatchType {
		u.CreateMissing = rq.route.subresource == ""
		u.Transform, err = rq.applyTransform(patch, opts)
	} else {
		u.Transform = rq.patchTransform(patch, apply, opts)
	}
	if err != nil {
		return err
	}
	it, created, err := rq.end.registry.Update(rq.ctx, u)
	if err != nil {
		return err
	}
	return rq.answerWrite(it, created, opts.dryRun)
}

// patchTransform applies a patch to the JSON of the current object.
func (rq *request) patchTransform(patch []byte, apply patcher, opts writeOptions) func(context.Context, catalog.Object) (catalog.Object, error) {
	info := rq.end.info
	return func(ctx context.Context, current catalog.Object) (catalog.Object, error) {
		before, err := codec.Single(info.FromStored(current), info.GVK, codec.Accepted{})
		if err != nil {
			return nil, err
		}
		after, strict, err := apply(before, patch, info.New(), opts.strictness)
		if err != nil {
			return nil, err
		}
		obj := info.New().(catalog.Object)
		unknown, err := kjson.UnmarshalStrict(after, obj)
		if err != nil {
			return nil, invalidPatch(after, err)
		}
		if strict = append(strict, unknown...); len(strict) > 0 {
			switch opts.strictness {
			case codec.Strict:
				return nil, invalidPatch(after, runtime.NewStrictDecodingError(strict))
			case codec.Warn:
				for _, e := range strict {
					rq.warn(e.Error())
				}
			}
		}
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		info.Default(obj)
		if err := rq.checkName(obj); err != nil {
			return nil, err
		}
		return rq.admitUpdate(obj, current, opts)
	}
}

func invalidPatch(after []byte, err error) error {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), string(after), err.Error())})
}

// patcher applies a patch to the JSON of an object. It also returns what strict reading finds wrong with the patch itself.
type patcher func(before, patch []byte, typed runtime.Object, strictness codec.Strictness) (after []byte, strict []error, err error)

var patchers = map[types.PatchType]patcher{
	types.JSONPatchType:           applyJSONPatch,
	types.MergePatchType:          applyMergePatch,
	types.StrategicMergePatchType: applyStrategicPatch,
}

func applyJSONPatch(before, patch []byte, _ runtime.Object, strictness codec.Strictness) ([]byte, []error, error) {
	var strict []error
	if strictness != codec.Ignore {
		var operations []struct {
			Op    string `json:"op"`
			Path  string `json:"path"`
			From  string `json:"from"`
			Value any    `json:"value"`
		}
		problems, err := kjson.UnmarshalStrict(patch, &operations)
		if err != nil {
			return nil, nil, badPatch(err)
		}
		for _, p := range problems {
			strict = append(strict, fmt.Errorf("json patch %w", p))
		}
	}
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	if len(decoded) > maxPatchOperations {
		return nil, nil, apierrors.NewRequestEntityTooLargeError(
			fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", maxPatchOperations, len(decoded)))
	}
	after, err := decoded.Apply(before)
	if err != nil {
		return nil, nil, unprocessable(err)
	}
	return after, strict, nil
}

func applyMergePatch(before, patch []byte, _ runtime.Object, strictness codec.Strictness) ([]byte, []error, error) {
	strict, err := strictMap(patch, strictness)
	if err != nil {
		return nil, nil, err
	}
	after, err := jsonpatch.MergePatch(before, patch)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	return after, strict, nil
}

func applyStrategicPatch(before, patch []byte, typed runtime.Object, strictness codec.Strictness) ([]byte, []error, error) {
	strict, err := strictMap(patch, strictness)
	if err != nil {
		return nil, nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, typed)
	switch {
	case err == nil:
		return after, strict, nil
	case errors.Is(err, mergepatch.ErrBadJSONDoc), errors.Is(err, mergepatch.ErrBadPatchFormatForPrimitiveList),
		errors.Is(err, mergepatch.ErrBadPatchFormatForRetainKeys), errors.Is(err, mergepatch.ErrBadPatchFormatForSetElementOrderList),
		errors.Is(err, mergepatch.ErrUnsupportedStrategicMergePatchFormat):
		return nil, nil, apierrors.NewBadRequest(err.Error())
	default:
		return nil, nil, unprocessable(err)
	}
}

// strictMap reads a patch that must be a JSON object.
func strictMap(patch []byte, strictness codec.Strictness) ([]error, error) {
	var m map[string]any
	strict, err := kjson.UnmarshalStrict(patch, &m)
	if err != nil {
		return nil, badPatch(err)
	}
	if strictness == codec.Ignore {
		return nil, nil
	}
	return strict, nil
}

func badPatch(err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
}

func unprocessable(err error) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
}

// applyTransform merges an applied configuration: server-side apply.
func (rq *request) applyTransform(patch []byte, opts writeOptions) (func(context.Context, catalog.Object) (catalog.Object, error), error) {
	info := rq.end.info
	applied, err := rq.readApplied(patch, opts)
	if err != nil {
		return nil, err
	}
	manager, err := rq.end.manager(rq.route.subresource)
	if err != nil {
		return nil, err
	}
	force := opts.force != nil && *opts.force
	return func(ctx context.Context, current catalog.Object) (catalog.Object, error) {
		rq.trace.Stage("managed fields")
		live := info.New().(catalog.Object)
		if current != nil {
			live = info.FromStored(current)
		}
		obj, err := manager.Apply(live, applied.DeepCopy(), opts.manager, force)
		if err != nil {
			return nil, err
		}
		if err := rq.checkName(obj); err != nil {
			return nil, err
		}
		if current != nil {
			return rq.admitMerged(obj, live, current, opts)
		}
		if obj.GetUID() != "" {
			return nil, apierrors.NewConflict(info.GVR.GroupResource(), rq.route.name,
				fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", obj.GetUID()))
		}
		return rq.admitApplied(obj, opts)
	}, nil
}

// readApplied decodes an applied configuration, which is YAML (or JSON).
func (rq *request) readApplied(patch []byte, opts writeOptions) (*unstructured.Unstructured, error) {
	asJSON, err := yaml.YAMLToJSON(patch)
	if err != nil {
		return nil, badPatch(err)
	}
	applied := &unstructured.Unstructured{}
	if err := json.Unmarshal(asJSON, &applied.Object); err != nil {
		return nil, badPatch(err)
	}
	if opts.strictness != codec.Ignore {
		if _, err := yaml.YAMLToJSONStrict(patch); err != nil {
			if opts.strictness == codec.Strict {
				return nil, apierrors.NewBadRequest(fmt.Sprintf("error strict decoding patch: %v", err))
			}
			rq.warn(err.Error())
		}
	}
	return applied, nil
}

// admitApplied goes on with an object that an apply creates: its managed fields are set already.
func (rq *request) admitApplied(obj catalog.Object, opts writeOptions) (catalog.Object, error) {
	if err := registry.EnsureNamespace(obj, rq.route.namespace); err != nil {
		return nil, err
	}
	return rq.admitStored(obj, opts)
}
