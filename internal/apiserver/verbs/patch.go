package verbs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/patchlimits"
	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/request"
	"skiff/internal/catalog"
	"skiff/internal/catalog/initializers"
)

const (
	maxPatchOperations = patchlimits.Operations
	maxPatchDepth      = patchlimits.Depth
)

var errPatchType = &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType,
	Reason: metav1.StatusReasonUnsupportedMediaType, Message: "415: Unsupported Media Type", Details: &metav1.StatusDetails{}}}

// patch changes an object by a JSON patch, a merge patch, a strategic merge patch or server-side apply.
func (rq *Request) patch() error {
	contentType, _, _ := strings.Cut(rq.Header.Get("Content-Type"), ";")
	kind := types.PatchType(strings.TrimSpace(contentType))
	apply, known := patchers[kind]
	if !known && kind != types.ApplyYAMLPatchType || kind == types.StrategicMergePatchType && rq.Endpoint.Info.JSONOnly {
		return rq.wrongPatchType()
	}
	opts, err := rq.writeOptions("PatchOptions", kind)
	if err != nil {
		return err
	}
	rq.Trace.Stage("decode")
	patch, err := rq.ReadBody()
	if err != nil {
		return err
	}
	u := registry.Update{Namespace: rq.Route.Namespace, Name: rq.Route.Name, Edit: rq.Endpoint.Edit(rq.Route.Subresource),
		Unconditional: true, Write: rq.RegistryWrite(opts.DryRun, rq.validateUpdate(opts.DryRun))}
	if err := checkPatch(kind, patch); err != nil {
		return err
	}
	if kind == types.ApplyYAMLPatchType {
		u.CreateMissing = rq.Route.Subresource == ""
		u.Transform, err = rq.applyTransform(patch, opts)
	} else {
		u.Transform = rq.patchTransform(patch, apply, opts)
	}
	if err != nil {
		return err
	}
	it, created, err := rq.Endpoint.Registry.Update(rq.Ctx, u)
	if err != nil {
		return err
	}
	return rq.sendWritten(it, created, opts.DryRun)
}

// customPatchTypes are the types of patches of custom resources, in upstream's order.
var customPatchTypes = []string{string(types.JSONPatchType), string(types.MergePatchType), string(types.ApplyYAMLPatchType)}

// wrongPatchType returns the error for a patch of a type that the resource does not have.
func (rq *Request) wrongPatchType() error {
	if !rq.Endpoint.Info.JSONOnly {
		return errPatchType
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType,
		Reason:  metav1.StatusReasonUnsupportedMediaType,
		Message: "the body of the request was in an unknown format - accepted media types include: " + strings.Join(customPatchTypes, ", ")}}
}

// checkPatch refuses a patch that is not JSON or is nested too deeply.
func checkPatch(kind types.PatchType, patch []byte) error {
	switch {
	case kind == types.ApplyYAMLPatchType:
		return nil
	case !json.Valid(patch):
		return apierrors.NewBadRequest("invalid JSON patch")
	case depth(patch) > maxPatchDepth:
		return errDeepPatch
	}
	return nil
}

var errDeepPatch = apierrors.NewBadRequest(fmt.Sprintf("the patch reaches deeper than %d levels", maxPatchDepth))

// depth returns how deeply valid JSON is nested.
func depth(data []byte) int {
	deepest, now, text := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case text && c == '\\':
			i++ // the escaped character does not end the string
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			now++
			deepest = max(deepest, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return deepest
}

// patchTransform returns the Transform of an update that applies a patch to the current object.
func (rq *Request) patchTransform(patch []byte, apply patcher, opts request.WriteOptions) func(context.Context, catalog.Object) (catalog.Object, error) {
	info := rq.Endpoint.Info
	return func(ctx context.Context, current catalog.Object) (catalog.Object, error) {
		obj := info.New().(catalog.Object)
		in := rq.initialization.New
		if err := rq.applyPatch(info.FromStored(current), obj, patch, apply, opts, &in); err != nil {
			return nil, err
		}
		rq.setInitializers(in)
		info.Default(obj)
		if err := rq.checkName(obj); err != nil {
			return nil, err
		}
		return rq.admitUpdate(obj, current, opts)
	}
}

// applyPatch sets into to the result of applying a patch to live, and warns the client of fields that were ignored. in is set to the initializers, if the
// object or the patch has any; it may be nil.
func (rq *Request) applyPatch(live, into runtime.Object, patch []byte, apply patcher, opts request.WriteOptions, in **initializers.Initializers) error {
	gvk := rq.Endpoint.Info.GVK
	if _, scale := into.(*autoscalingv1.Scale); scale {
		gvk = scaleInfo.GVK
	}
	resultText, strict, err := apply(rq.API, live, into, gvk, patch, opts.Strictness, ofPatch(in, patch))
	var unfit *notOfKindError
	switch {
	case errors.As(err, &unfit):
		return rq.invalidPatch(unfit.resultText, unfit.error)
	case err != nil:
		return rq.withoutSecrets(err)
	}
	into.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	switch {
	case len(strict) == 0 || opts.Strictness == codec.Ignore:
	case opts.Strictness == codec.Strict:
		return rq.invalidPatch(resultText, runtime.NewStrictDecodingError(strict))
	default:
		for _, e := range strict {
			rq.Warn(e.Error())
		}
	}
	return nil
}

// patcher sets into to the result of applying a patch to live. It returns the text that errors show, and the errors of strict decoding. in are the initializers
// of live, which are changed too; nil if neither live nor the patch has any.
type patcher func(api *API, live, into runtime.Object, gvk schema.GroupVersionKind, patch []byte, strictness codec.Strictness, in **initializers.Initializers) (resultText string, strict []error, err error)

var patchers = map[types.PatchType]patcher{
	types.JSONPatchType:           onJSON(applyJSONPatch),
	types.MergePatchType:          onNamedFields(onJSON(applyMergePatch)),
	types.StrategicMergePatchType: onNamedFields(applyStrategicPatch),
}

// onJSON returns a patcher that applies a function to the object's JSON.
func onJSON(apply func(before, patch []byte, strictness codec.Strictness) (after []byte, strict []error, err error)) patcher {
	return func(api *API, live, into runtime.Object, gvk schema.GroupVersionKind, patch []byte, strictness codec.Strictness, in **initializers.Initializers) (string, []error, error) {
		before, err := codec.Single(live, gvk, codec.Accepted{})
		if err == nil && in != nil {
			before, err = codec.WithInitializers(before, *in)
		}
		if err != nil {
			return "", nil, err
		}
		after, strict, err := apply(before, patch, strictness)
		if err != nil {
			return "", nil, err
		}
		if err := api.sameKind(after, gvk); err != nil {
			return "", nil, &notOfKindError{err, string(after)}
		}
		unknown, err := codec.UnmarshalStrict(after, into)
		if err != nil {
			return "", nil, &notOfKindError{err, string(after)}
		}
		if in != nil {
			if *in, _, err = codec.SentInitializers(after, codec.JSON); err != nil {
				return "", nil, err
			}
		}
		return string(after), append(strict, unknown...), nil
	}
}

// sameKind refuses a patch that changes the kind of an object.
func (api *API) sameKind(after []byte, gvk schema.GroupVersionKind) error {
	got, err := codec.KindOf(after)
	if err != nil || got == gvk {
		return err
	}
	for _, info := range api.Served().Infos {
		if info.GVK == got {
			if err := kjson.UnmarshalCaseSensitivePreserveInts(after, info.New()); err != nil {
				return err
			}
			return fmt.Errorf("converting (%s) to (%s): unknown conversion", got.Kind, gvk.Kind)
		}
	}
	return runtime.NewNotRegisteredErrForKind(codec.SchemeName, got)
}

// jsonPatchOperation is one operation of a JSON patch.
type jsonPatchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

// jsonPatchOperationName is what errors call jsonPatchOperation. It is fixed, so that answers do not change when the type moves to another package.
const jsonPatchOperationName = "apiserver.jsonPatchOperation"

// applyJSONPatch applies a JSON patch (RFC 6902) to the JSON of an object.
func applyJSONPatch(before, patch []byte, strictness codec.Strictness) ([]byte, []error, error) {
	var strict []error
	if strictness != codec.Ignore {
		var operations []jsonPatchOperation
		problems, err := kjson.UnmarshalStrict(patch, &operations)
		if err != nil {
			return nil, nil, badPatch(errors.New(strings.ReplaceAll(err.Error(), "verbs.jsonPatchOperation", jsonPatchOperationName)))
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
	for _, op := range decoded {
		path, _ := op.Path()
		from, _ := op.From()
		if max(strings.Count(path, "/"), strings.Count(from, "/")) > maxPatchDepth {
			return nil, nil, errDeepPatch
		}
	}
	patchlimits.BoundCopies()
	after, err := decoded.Apply(before)
	if err != nil {
		return nil, nil, unprocessable(err)
	}
	return after, strict, nil
}

// applyMergePatch applies a merge patch (RFC 7386) to the JSON of an object.
func applyMergePatch(before, patch []byte, strictness codec.Strictness) ([]byte, []error, error) {
	_, strict, err := patchMap(patch, strictness)
	if err != nil {
		return nil, nil, badPatch(err)
	}
	after, err := jsonpatch.MergePatch(before, patch)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	return after, strict, nil
}

// applyStrategicPatch merges maps by the patch strategies of the object's type.
func applyStrategicPatch(_ *API, live, into runtime.Object, _ schema.GroupVersionKind, patch []byte, strictness codec.Strictness, in **initializers.Initializers) (string, []error, error) {
	changes, strict, err := patchMap(patch, strictness)
	if err != nil {
		return "", nil, apierrors.NewBadRequest(err.Error())
	}
	if in != nil {
		if *in, err = mergeInitializers(*in, changes); err != nil {
			return "", nil, err
		}
	}
	before, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return "", nil, err
	}
	after, err := strategicpatch.StrategicMergeMapPatch(before, changes, into)
	if err != nil {
		return "", nil, strategicFailure(err)
	}
	resultText := fmt.Sprintf("%+v", changes) // before merging, which removes the directives
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(after, into, strictness != codec.Ignore)
	if problems, is := runtime.AsStrictDecodingError(err); is {
		return resultText, append(strict, problems.Errors()...), nil
	}
	if err != nil {
		return "", nil, &notOfKindError{err, resultText}
	}
	return resultText, strict, nil
}

// strategicFailure returns the API error for an error of a strategic merge.
func strategicFailure(err error) error {
	switch {
	case errors.Is(err, mergepatch.ErrBadJSONDoc), errors.Is(err, mergepatch.ErrBadPatchFormatForPrimitiveList),
		errors.Is(err, mergepatch.ErrBadPatchFormatForRetainKeys), errors.Is(err, mergepatch.ErrBadPatchFormatForSetElementOrderList),
		errors.Is(err, mergepatch.ErrUnsupportedStrategicMergePatchFormat):
		return apierrors.NewBadRequest(err.Error())
	case errors.Is(err, mergepatch.ErrNoListOfLists):
		return unprocessable(err)
	}
	return err
}

// patchMap decodes a patch that must be a JSON object, and returns the errors of strict decoding.
func patchMap(patch []byte, strictness codec.Strictness) (map[string]any, []error, error) {
	m := map[string]any{}
	strict, err := kjson.UnmarshalStrict(patch, &m)
	if err != nil {
		return nil, nil, err
	}
	if strictness == codec.Ignore {
		strict = nil
	}
	return m, strict, nil
}

func badPatch(err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
}

func unprocessable(err error) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
}

// applyTransform returns the Transform of an update that merges an applied configuration (server-side apply).
func (rq *Request) applyTransform(patch []byte, opts request.WriteOptions) (func(context.Context, catalog.Object) (catalog.Object, error), error) {
	info := rq.Endpoint.Info
	applied, err := readApplied(patch)
	if err == nil {
		err = rq.takeInitializers(applied)
	}
	if err != nil {
		return nil, rq.withoutSecrets(err)
	}
	manager, err := rq.fieldsManager()
	if err != nil {
		return nil, err
	}
	force := opts.Force != nil && *opts.Force
	return func(ctx context.Context, current catalog.Object) (catalog.Object, error) {
		rq.setSentInitializers()
		rq.Trace.Stage("managed fields")
		live := info.New().(catalog.Object)
		if current != nil {
			live = info.FromStored(current)
		}
		obj, err := manager.Apply(live, applied.DeepCopy(), opts.Manager, force)
		if err == nil {
			err = rq.checkApplied(patch, opts)
		}
		if err != nil {
			return nil, rq.withoutSecrets(err)
		}
		if err := rq.checkName(obj); err != nil {
			return nil, err
		}
		if current != nil {
			return rq.admitMerged(obj, live, current, opts)
		}
		if obj.GetUID() != "" {
			return nil, apierrors.NewConflict(info.GVR.GroupResource(), rq.Route.Name,
				fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", obj.GetUID()))
		}
		return rq.admitApplied(obj, opts)
	}, nil
}

// readApplied decodes an applied configuration, which is YAML (or JSON).
func readApplied(patch []byte) (*unstructured.Unstructured, error) {
	asJSON, err := yaml.YAMLToJSON(patch)
	if err != nil {
		return nil, badPatch(fmt.Errorf("error converting YAML to JSON: %w", err))
	}
	applied := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(asJSON, &applied.Object); err != nil {
		return nil, badPatch(fmt.Errorf("error unmarshaling JSON: while decoding JSON: %w", err))
	}
	return applied, nil
}

// checkApplied warns of, or refuses, duplicate fields of an applied configuration. Fields that are not in the schema were refused before.
func (rq *Request) checkApplied(patch []byte, opts request.WriteOptions) error {
	if opts.Strictness == codec.Ignore {
		return nil
	}
	_, err := yaml.YAMLToJSONStrict(patch)
	switch {
	case err == nil:
	case opts.Strictness == codec.Strict:
		return apierrors.NewBadRequest(fmt.Sprintf("error strict decoding patch: error converting YAML to JSON: %v", err))
	default:
		for _, line := range codec.Lines(err) {
			rq.Warn(line)
		}
	}
	return nil
}

// admitApplied admits an object that server-side apply creates. Its managedFields are already set.
func (rq *Request) admitApplied(obj catalog.Object, opts request.WriteOptions) (catalog.Object, error) {
	if err := registry.EnsureNamespace(obj, rq.Route.Namespace); err != nil {
		return nil, err
	}
	return rq.admitStored(obj, opts)
}
