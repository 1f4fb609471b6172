package catalog

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/warning"
)

// BeforeCreate prepares a decoded, defaulted object for storing and validates it. The caller has set
// name, namespace, uid and creationTimestamp.
func (i *Info) BeforeCreate(obj Object, req Request) field.ErrorList {
	if i.Status != nil && !i.StatusOnCreate {
		i.ZeroStatus(obj)
	}
	if i.Generations {
		obj.SetGeneration(1)
	}
	i.PrepareCreate(obj, req)
	errs := validation.ValidateObjectMetaAccessor(obj, i.Namespaced, i.Name, field.NewPath("metadata"))
	if !i.AnyFinalizer {
		errs = append(errs, checkFinalizers(obj)...)
	}
	return append(errs, i.Validate(obj)...)
}

// BeforeUpdate prepares an updated object to replace the old one through the main endpoint (edit is nil) or one of the
// resource's edits, and validates it. Warnings of the validation go to whom WithWarnings names.
func (i *Info) BeforeUpdate(ctx context.Context, new, old Object, edit *EditInfo) field.ErrorList {
	new.SetGeneration(old.GetGeneration())
	validate := i.ValidateUpdate
	switch {
	case edit == nil:
		if i.Status != nil {
			i.CopyStatus(new, old)
		}
		i.PrepareUpdate(new, old)
		if i.Generations && i.Changed(new, old) {
			new.SetGeneration(old.GetGeneration() + 1)
		}
	case edit == i.Status:
		i.RestoreAllButStatus(new, old)
		edit.PrepareUpdate(new, old)
		validate = edit.ValidateUpdate
	default:
		edit.PrepareUpdate(new, old)
		if i.Generations && i.Changed(new, old) {
			new.SetGeneration(old.GetGeneration() + 1)
		}
		validate = edit.ValidateUpdate
	}
	keepSystemMetadata(new, old)
	errs := validation.ValidateObjectMetaAccessor(new, i.Namespaced, anyPathSegment, field.NewPath("metadata"))
	errs = append(errs, validation.ValidateObjectMetaAccessorUpdate(new, old, field.NewPath("metadata"))...)
	if !i.AnyFinalizer {
		errs = append(errs, checkFinalizers(new)...)
	}
	return append(errs, validate(ctx, new, old)...)
}

// BeforeInitialization is BeforeUpdate for an object that still waits for its initializers: nothing has seen it, so that kinds may allow more to be changed.
func (i *Info) BeforeInitialization(ctx context.Context, new, old Object, edit *EditInfo) field.ErrorList {
	if i.Initialize == nil || edit != nil {
		return i.BeforeUpdate(ctx, new, old, edit)
	}
	all := *i
	all.ValidateUpdate = func(_ context.Context, new, old Object) field.ErrorList { return i.Initialize(new, old) }
	return all.BeforeUpdate(ctx, new, old, nil)
}

// WithWarnings returns a context with which the validation of updates calls warn for each error that it tolerates because it is in a value that did not
// change.
func WithWarnings(ctx context.Context, warn func(text string)) context.Context {
	return warning.WithWarningRecorder(ctx, warner(warn))
}

type warner func(text string)

// AddWarning implements warning.Recorder.
func (w warner) AddWarning(_, text string) { w(text) }

// checkFinalizers refuses finalizers that are neither standard nor qualified names.
func checkFinalizers(obj Object) field.ErrorList {
	var errs field.ErrorList
	for n, name := range obj.GetFinalizers() {
		if strings.Contains(name, "/") {
			continue
		}
		switch name {
		case string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents:
		default:
			errs = append(errs, field.Invalid(field.NewPath("metadata", "finalizers").Index(n), name, "name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}

// ValidateView validates a view's form of an object with the view's rules, besides which the stored resource's rules apply; old is nil on
// create.
func (i *Info) ValidateView(ctx context.Context, new, old Object) field.ErrorList {
	switch {
	case i.Stored == i:
		return nil
	case old == nil:
		return i.Validate(new)
	default:
		return i.ValidateUpdate(ctx, new, old)
	}
}

// keepSystemMetadata restores the metadata that no update may change.
func keepSystemMetadata(new, old Object) {
	if new.GetUID() == "" {
		new.SetUID(old.GetUID())
	}
	if t := old.GetCreationTimestamp(); !t.IsZero() {
		new.SetCreationTimestamp(t)
	}
	if t := old.GetDeletionTimestamp(); t != nil {
		new.SetDeletionTimestamp(t)
	}
	if s := old.GetDeletionGracePeriodSeconds(); s != nil && new.GetDeletionGracePeriodSeconds() == nil {
		new.SetDeletionGracePeriodSeconds(s)
	}
}

// anyPathSegment is the name rule for updates: the name was validated on creation, perhaps by older rules.
func anyPathSegment(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}
