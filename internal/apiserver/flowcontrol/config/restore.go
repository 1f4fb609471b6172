package config

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/catalog"
	catalogflowcontrol "skiff/internal/catalog/flowcontrol"
)

// Bootstrap creates an object that every cluster has as the field manager that also restores it.
func Bootstrap(ctx context.Context, store Store, obj catalog.Object) error {
	return store.CreateAs(ctx, producer, obj.DeepCopyObject().(catalog.Object))
}

// restore creates the mandatory and suggested objects that are missing, updates those that are not to be changed by administrators, and deletes those that a server of
// another version has created and keeps itself.
func (l *Loop) restore(ctx context.Context) error {
	err := l.restoreAll(ctx)
	if err != nil && ctx.Err() == nil {
		l.Log.Warn("failed to restore a flow schema or priority level that every cluster has", "err", err)
	}
	return err
}

func (l *Loop) restoreAll(ctx context.Context) error {
	l.mu.Lock()
	current := map[string]catalog.Object{} // by what key returns
	for _, o := range l.levels {
		current[key(o)] = o
	}
	for _, o := range l.schemas {
		current[key(o)] = o
	}
	l.mu.Unlock()
	for _, step := range []struct {
		objects   []catalog.Object
		mandatory bool
	}{{catalogflowcontrol.Suggested(), false}, {catalogflowcontrol.Mandatory(), true}} {
		for _, want := range step.objects {
			have := current[key(want)]
			delete(current, key(want))
			if err := l.restoreObject(ctx, have, want, step.mandatory); err != nil {
				return fmt.Errorf("%s: %w", key(want), err)
			}
		}
	}
	for _, o := range current {
		if keep, err := strconv.ParseBool(o.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey]); err != nil || !keep {
			continue
		}
		if err := l.Store.Delete(ctx, resourceOf(o), "", o.GetName(), o.GetUID()); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("%s: %w", key(o), err)
		}
	}
	return nil
}

func (l *Loop) restoreObject(ctx context.Context, have, want catalog.Object, mandatory bool) error {
	if have == nil {
		if err := Bootstrap(ctx, l.Store, want); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	}
	if update(have, want, mandatory) == nil {
		return nil
	}
	err := l.Store.UpdateAs(ctx, resourceOf(want), producer, want.GetName(), func(obj catalog.Object) error {
		if next := update(obj, want, mandatory); next != nil {
			next(obj)
		}
		return nil
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it has changed meanwhile, and is looked at again
	}
	return err
}

func key(o catalog.Object) string { return fmt.Sprintf("%s %s", resourceOf(o).Resource, o.GetName()) }

func resourceOf(o catalog.Object) schema.GroupResource {
	if _, ok := o.(*flowcontrolv1.FlowSchema); ok {
		return schemaResource
	}
	return levelResource
}

// update returns what brings an object up to date, nil if it is. The spec of a mandatory object is always restored, that of a suggested one if its annotation says so,
// or, without one, if nobody has changed it yet. The annotation then says which it was.
func update(have, want catalog.Object, mandatory bool) func(catalog.Object) {
	auto := mandatory
	said, err := strconv.ParseBool(have.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey])
	if !mandatory {
		auto = said
		if err != nil {
			auto = have.GetGeneration() == 1
		}
	}
	annotate, respec := err != nil || said != auto, auto && !sameSpec(have, want)
	if !annotate && !respec {
		return nil
	}
	return func(obj catalog.Object) {
		if respec {
			replaceSpec(obj, want)
		}
		if annotate {
			annotations := maps.Clone(obj.GetAnnotations())
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[flowcontrolv1.AutoUpdateAnnotationKey] = strconv.FormatBool(auto)
			obj.SetAnnotations(annotations)
		}
	}
}

// sameSpec compares specs, but for what administrators may set of the exempt level.
func sameSpec(have, want catalog.Object) bool {
	switch want := want.(type) {
	case *flowcontrolv1.FlowSchema:
		return apiequality.Semantic.DeepEqual(have.(*flowcontrolv1.FlowSchema).Spec, want.Spec)
	case *flowcontrolv1.PriorityLevelConfiguration:
		spec := &have.(*flowcontrolv1.PriorityLevelConfiguration).Spec
		if want.Spec.Exempt != nil {
			return spec.Exempt != nil && spec.Type == want.Spec.Type && spec.Limited == nil
		}
		return apiequality.Semantic.DeepEqual(*spec, want.Spec)
	}
	return true
}

func replaceSpec(obj, want catalog.Object) {
	switch want := want.DeepCopyObject().(type) {
	case *flowcontrolv1.FlowSchema:
		obj.(*flowcontrolv1.FlowSchema).Spec = want.Spec
	case *flowcontrolv1.PriorityLevelConfiguration:
		obj.(*flowcontrolv1.PriorityLevelConfiguration).Spec = want.Spec
	}
}
