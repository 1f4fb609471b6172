package verbs

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fields "k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/managedfields"
	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/request"
	"skiff/internal/apiserver/response"
	"skiff/internal/catalog"
)

// scaleInfo declares Scale, which is a view of an object with replicas: writing it changes the replicas and nothing else.
var scaleInfo = catalog.Resource[autoscalingv1.Scale]{Group: "autoscaling", Version: "v1", Kind: "Scale", Plural: "scale", Namespaced: true, Virtual: true,
	Columns: []catalog.Column[autoscalingv1.Scale]{
		catalog.NameColumn[autoscalingv1.Scale](),
		{Name: "Desired", Type: "integer", Description: autoscalingv1.ScaleSpec{}.SwaggerDoc()["replicas"], Cell: func(s *autoscalingv1.Scale, _ time.Time) any { return int64(s.Spec.Replicas) }},
		{Name: "Available", Type: "integer", Description: autoscalingv1.ScaleStatus{}.SwaggerDoc()["replicas"], Cell: func(s *autoscalingv1.Scale, _ time.Time) any { return int64(s.Status.Replicas) }},
		catalog.AgeColumn[autoscalingv1.Scale](),
	}}.Info()

// scale serves the scale subresource.
func (rq *Request) scale() error {
	switch rq.Route.Verb {
	case "get":
		return rq.getScale()
	case "update", "patch":
		return rq.writeScale()
	}
	return response.ErrMethodNotAllowed
}

func (rq *Request) getScale() error {
	accept, err := codec.Negotiate(rq.Header.Get("Accept"), codec.AsTable)
	if err != nil {
		return err
	}
	rq.Accept = accept
	it, err := rq.Endpoint.Registry.Get(rq.Ctx, rq.Route.Namespace, rq.Route.Name, rq.Query.Get("resourceVersion"))
	if err != nil {
		return err
	}
	obj, err := rq.Endpoint.Registry.Object(rq.Ctx, it)
	if err != nil {
		return err
	}
	scale, err := rq.Endpoint.scaleOf(obj)
	if err != nil {
		return err
	}
	if scale.Spec.Replicas == catalog.UnsetReplicas {
		return apierrors.NewInternalError(rq.Endpoint.Info.Stored.Scale.ErrMissing)
	}
	if accept.Shape == codec.AsTable {
		return rq.sendScaleTable(scale)
	}
	return rq.SendObject(http.StatusOK, scale, scaleInfo.GVK)
}

// sendScaleTable sends a scale as a table of one row.
func (rq *Request) sendScaleTable(scale *autoscalingv1.Scale) error {
	table := &metav1.Table{ListMeta: metav1.ListMeta{ResourceVersion: scale.ResourceVersion}}
	row := metav1.TableRow{}
	for _, c := range scaleInfo.Columns {
		table.ColumnDefinitions = append(table.ColumnDefinitions, c.TableColumnDefinition)
		row.Cells = append(row.Cells, c.Cell(scale, time.Now()))
	}
	partial, err := response.PartialJSON(scale, rq.Accept.Version)
	if err != nil {
		return err
	}
	row.Object.Raw = partial
	table.Rows = []metav1.TableRow{row}
	return rq.SendObject(http.StatusOK, table, rq.PartialKind("Table"))
}

// scaleOf returns the scale of a stored object.
func (e *Endpoint) scaleOf(obj catalog.Object) (s *autoscalingv1.Scale, err error) {
	s = &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: obj.GetName(), Namespace: obj.GetNamespace(), UID: obj.GetUID(),
		ResourceVersion: obj.GetResourceVersion(), CreationTimestamp: obj.GetCreationTimestamp()}}
	if s.Spec, s.Status, err = e.Info.Stored.Scale.Get(obj); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return s, nil
}

// writeScale changes the replicas of an object through its scale, by PUT or any patch.
func (rq *Request) writeScale() error {
	var kind types.PatchType
	optionsKind := "UpdateOptions"
	if rq.Route.Verb == "patch" {
		contentType, _, _ := strings.Cut(rq.Header.Get("Content-Type"), ";")
		kind, optionsKind = types.PatchType(strings.TrimSpace(contentType)), "PatchOptions"
		if patchers[kind] == nil && kind != types.ApplyYAMLPatchType || kind == types.StrategicMergePatchType && rq.Endpoint.Info.JSONOnly {
			return rq.wrongPatchType()
		}
	}
	opts, err := rq.writeOptions(optionsKind, kind)
	if err != nil {
		return err
	}
	rq.Accept.Shape = codec.AsObject
	body, err := rq.ReadBody()
	if err != nil {
		return err
	}
	if kind != "" {
		if err := checkPatch(kind, body); err != nil {
			return err
		}
	}
	manager, err := managedfields.New(scaleInfo, "scale", nil)
	if err != nil {
		return err
	}
	change := func(live *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
		switch kind {
		case "":
			return rq.putScale(body, live, manager, opts)
		case types.ApplyYAMLPatchType:
			return rq.applyScale(body, live, manager, opts)
		default:
			return rq.patchScale(body, patchers[kind], live, manager, opts)
		}
	}
	it, _, err := rq.Endpoint.Registry.Update(rq.Ctx, registry.Update{Namespace: rq.Route.Namespace, Name: rq.Route.Name, Unconditional: true,
		Transform: func(ctx context.Context, current catalog.Object) (catalog.Object, error) {
			return rq.withScale(ctx, current, change, opts)
		},
		Write: rq.RegistryWrite(opts.DryRun, nil)})
	if err != nil {
		return err
	}
	rq.RecordWrite(it, opts.DryRun)
	obj, err := rq.Endpoint.Registry.Object(rq.Ctx, it)
	if err != nil {
		return err
	}
	scale, err := rq.Endpoint.scaleOf(obj)
	if err != nil {
		return err
	}
	return rq.SendObject(http.StatusOK, scale, scaleInfo.GVK)
}

// withScale returns the current object with the replicas of its scale as changed by change.
func (rq *Request) withScale(ctx context.Context, current catalog.Object, change func(*autoscalingv1.Scale) (*autoscalingv1.Scale, error), opts request.WriteOptions) (catalog.Object, error) {
	entries := fields.NewScaleHandler(current.GetManagedFields(), rq.Endpoint.Info.GVK.GroupVersion(), replicasPaths(rq.Endpoint.Info))
	live, err := rq.Endpoint.scaleOf(current)
	if err != nil {
		return nil, err
	}
	owned, err := entries.ToSubresource()
	if err != nil {
		return nil, err
	}
	live.ManagedFields = owned
	scale, err := change(live)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(rq.checkName(scale), registry.EnsureNamespace(scale, rq.Route.Namespace)); err != nil {
		return nil, err
	}
	if err := rq.Endpoint.Registry.CheckUID(current, &scale.UID); err != nil {
		return nil, err
	}
	attributes := rq.AdmissionAttributes(admission.Update, scale, live, opts.DryRun)
	if err := rq.API.Admission.Admit(ctx, attributes, rq.Trace.Stage); err != nil {
		return nil, err
	}
	if scale.Spec.Replicas == catalog.UnsetReplicas {
		return nil, apierrors.NewBadRequest(rq.Endpoint.Info.Stored.Scale.ErrEmpty.Error())
	}
	if errs := validateScale(scale); len(errs) > 0 {
		return nil, apierrors.NewInvalid(scaleInfo.GVK.GroupKind(), scale.Name, errs)
	}
	if err := rq.API.Admission.Validate(ctx, attributes, rq.Trace.Stage); err != nil {
		return nil, err
	}
	obj := current.DeepCopyObject().(catalog.Object)
	if err := rq.Endpoint.Info.Stored.Scale.Set(obj, scale.Spec.Replicas); err != nil {
		return nil, err
	}
	obj.SetResourceVersion(scale.ResourceVersion)
	updated, err := entries.ToParent(scale.ManagedFields)
	if err != nil {
		return nil, err
	}
	obj.SetManagedFields(updated)
	return obj, nil
}

// replicasPaths returns the path of the replicas in objects of a kind, for managedFields.
func replicasPaths(info *catalog.Info) fields.ResourcePathMappings {
	var path fieldpath.Path
	for _, name := range info.Stored.Scale.Path {
		path = append(path, fieldpath.PathElement{FieldName: &name})
	}
	return fields.ResourcePathMappings{info.GVK.GroupVersion().String(): path}
}

func validateScale(s *autoscalingv1.Scale) field.ErrorList {
	errs := validation.ValidateObjectMeta(&s.ObjectMeta, true, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	if s.Spec.Replicas < 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec").Child("replicas"), s.Spec.Replicas, "must be greater than or equal to 0"))
	}
	return errs
}

func (rq *Request) putScale(body []byte, live *autoscalingv1.Scale, manager *managedfields.Manager, opts request.WriteOptions) (*autoscalingv1.Scale, error) {
	scale := &autoscalingv1.Scale{}
	if err := rq.Decode(body, scaleInfo.GVK, scale, opts.Strictness); err != nil {
		return nil, err
	}
	manager.Update(live, scale, rq.FieldManager(opts.Manager))
	return scale, nil
}

func (rq *Request) patchScale(patch []byte, apply patcher, live *autoscalingv1.Scale, manager *managedfields.Manager, opts request.WriteOptions) (*autoscalingv1.Scale, error) {
	scale := &autoscalingv1.Scale{}
	if err := rq.applyPatch(live, scale, patch, apply, opts, nil); err != nil {
		return nil, err
	}
	manager.Update(live, scale, rq.FieldManager(opts.Manager))
	return scale, nil
}

func (rq *Request) applyScale(patch []byte, live *autoscalingv1.Scale, manager *managedfields.Manager, opts request.WriteOptions) (*autoscalingv1.Scale, error) {
	applied, err := readApplied(patch)
	if err != nil {
		return nil, err
	}
	obj, err := manager.Apply(live, applied, opts.Manager, opts.Force != nil && *opts.Force)
	if err == nil {
		err = rq.checkApplied(patch, opts)
	}
	if err != nil {
		return nil, err
	}
	return obj.(*autoscalingv1.Scale), nil
}
