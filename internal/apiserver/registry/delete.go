package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/cache"
	"skiff/internal/catalog"
	"skiff/internal/store"
)

// Delete removes an object. One with a grace period or finalizers is only marked for deletion, and removed later. removed reports which; it is the
// object's last state, or its state now.
func (r *Registry) Delete(ctx context.Context, namespace, name string, opts *metav1.DeleteOptions, w Write) (it *cache.Item, removed bool, err error) {
	if errs := validation.ValidateDeleteOptions(opts); len(errs) > 0 {
		return nil, false, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	w.Initialization = nil // an object that is marked for deletion keeps its initializers
	key := r.Key(namespace, name)
	current, fromStore := r.Cache.Newest(key), false
	var marked *cache.Item // set once this request has marked the object: from then on it deletes no other object of that name
	for range maxUpdateTries {
		if current == nil {
			if current, err = r.read(ctx, key); err != nil {
				return nil, false, err
			}
			if marked != nil && (current == nil || current.UID != marked.UID) {
				return marked, true, nil // removed by another client that saw the mark, such as a kubelet
			}
			if current == nil {
				return nil, false, apierrors.NewNotFound(r.Resource(), name)
			}
			fromStore = true
		}
		it, removed, err = r.deleteVersion(ctx, key, current, opts, w, &marked)
		var conflict *store.ConflictError
		switch {
		case err == nil:
			return it, removed, nil
		case errors.As(err, &conflict):
			current, fromStore = nil, false
		case fromStore, errors.As(err, new(storeFailure)):
			return nil, false, err // a write with an unknown outcome is not repeated: it may have happened
		default:
			newest, readErr := r.read(ctx, key)
			if readErr != nil {
				return nil, false, readErr
			}
			if newest != nil && newest.Revision == current.Revision {
				return nil, false, err
			}
			current, fromStore = newest, newest != nil
		}
	}
	return nil, false, apierrors.NewConflict(r.Resource(), name, errors.New(modified))
}

// DeleteUnreadable removes an object that is in the store but cannot be decoded, regardless of finalizers and owners. It refuses to remove any other.
func (r *Registry) DeleteUnreadable(ctx context.Context, namespace, name string, dryRun bool) error {
	key := r.storeKey(r.Key(namespace, name))
	kv, _, err := r.store.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return apierrors.NewNotFound(r.Resource(), name)
	}
	if err != nil {
		return r.failure(err)
	}
	if it, err := r.parse(ctx, r.Key(namespace, name), kv); err == nil {
		if _, err := r.Decode(it); err == nil {
			return apierrors.NewConflict(r.Resource(), name, fmt.Errorf("StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: unsafe deletion is not allowed because the object is decodable from storage", key))
		}
	}
	if dryRun {
		return nil
	}
	_, err = r.store.Delete(ctx, key, kv.Revision)
	var conflict *store.ConflictError
	switch {
	case errors.As(err, &conflict):
		return apierrors.NewConflict(r.Resource(), name, errors.New(modified))
	case errors.Is(err, store.ErrNotFound):
		return apierrors.NewNotFound(r.Resource(), name)
	}
	return r.failure(err)
}

// deleteVersion tries to delete one version of an object, and sets marked if it has stored the object marked for deletion. A *store.ConflictError
// means that the version is not the newest.
func (r *Registry) deleteVersion(ctx context.Context, key string, current *cache.Item, opts *metav1.DeleteOptions, w Write, marked **cache.Item) (*cache.Item, bool, error) {
	obj, err := r.deletable(ctx, current)
	if err != nil {
		return nil, false, err
	}
	if err := r.checkPreconditions(obj, opts.Preconditions); err != nil {
		return nil, false, err
	}
	if r.Info.Deletion.Forbidden != nil {
		if reason := r.Info.Deletion.Forbidden(obj); reason != "" {
			return nil, false, apierrors.NewForbidden(r.Resource(), obj.GetName(), errors.New(reason))
		}
	}
	if err := w.validate(ctx, nil, obj); err != nil {
		return nil, false, err
	}
	copied, save := obj.DeepCopyObject().(catalog.Object), r.save
	if r.converts() { // a mark changes nothing that would have to be converted
		if copied, err = r.Info.AsStored(current.Raw()); err != nil {
			return nil, false, r.undecodable(current, err)
		}
		save = r.saveStored
	}
	pending := r.markDeleting(copied, opts, w.Request.Now)
	if pending == alreadyPending {
		return current, false, r.checkNewest(ctx, key, current)
	}
	w.stage("store")
	if pending == removeNow {
		return r.remove(ctx, key, obj, current, w)
	}
	it, err := save(ctx, key, copied, obj, current, w)
	if err != nil {
		return nil, false, err
	}
	*marked = it
	if pending == markThenRemove {
		return r.remove(ctx, key, copied, it, w)
	}
	return it, false, nil
}

// deletable returns the object of an item that is to be deleted. If it cannot be converted, that is the object in the version in which it is stored: to
// delete it, only its metadata is changed.
func (r *Registry) deletable(ctx context.Context, it *cache.Item) (catalog.Object, error) {
	obj, err := r.Object(ctx, it)
	if errors.As(err, new(*catalog.ConversionError)) {
		return r.Info.AsStored(it.Raw())
	}
	return obj, err
}

type deletion int

const (
	removeNow      deletion = iota
	markThenRemove          // watchers see the object marked, and then removed
	markOnly                // finalizers or a grace period keep the object
	alreadyPending
)

// markDeleting sets the deletion metadata of an object, and returns what is to be done with it.
func (r *Registry) markDeleting(obj catalog.Object, opts *metav1.DeleteOptions, now time.Time) deletion {
	grace, pending := r.applyGrace(obj, opts, now)
	if pending {
		return alreadyPending
	}
	before := obj.GetFinalizers()
	obj.SetFinalizers(r.deletionFinalizers(before, opts))
	if !r.finalizing(obj) {
		switch {
		case grace == nil:
			return removeNow
		case *grace == 0:
			return markThenRemove
		default:
			return markOnly
		}
	}
	if grace == nil {
		if obj.GetDeletionTimestamp() != nil && slices.Equal(before, obj.GetFinalizers()) && r.Info.Deletion.Mark == nil {
			return alreadyPending
		}
		r.markNow(obj, now)
	}
	return markOnly
}

// applyGrace sets the deletionTimestamp of an object whose kind is deleted gracefully, and returns its grace period; nil for other kinds. pending
// reports that the deadline of an earlier request stands.
func (r *Registry) applyGrace(obj catalog.Object, opts *metav1.DeleteOptions, now time.Time) (grace *int64, pending bool) {
	if r.Info.Grace == nil {
		return nil, false
	}
	asked := opts.GracePeriodSeconds
	if asked != nil && *asked < 0 {
		one := int64(1)
		asked = &one
	}
	if deadline := obj.GetDeletionTimestamp(); deadline != nil {
		was := obj.GetDeletionGracePeriodSeconds()
		switch {
		case was == nil || *was == 0:
			return nil, false
		case asked == nil || *asked >= *was:
			return nil, true
		}
		// The deadline can only be moved to an earlier time, and not into the past.
		period := *asked
		nearer := metav1.NewTime(deadline.Add(time.Duration(period-*was) * time.Second))
		if nearer.Time.Before(now) {
			nearer = metav1.NewTime(now)
			if period != 0 {
				period = 1
			}
		}
		obj.SetDeletionTimestamp(&nearer)
		obj.SetDeletionGracePeriodSeconds(&period)
		return &period, false
	}
	period := r.Info.Grace(obj, asked)
	deadline := metav1.NewTime(now.Add(time.Duration(period) * time.Second)).Rfc3339Copy()
	obj.SetDeletionTimestamp(&deadline)
	obj.SetDeletionGracePeriodSeconds(&period)
	raiseGeneration(obj)
	return &period, false
}

// markNow marks an object for deletion without a grace period.
func (r *Registry) markNow(obj catalog.Object, now time.Time) {
	if obj.GetDeletionTimestamp() == nil {
		raiseGeneration(obj)
	}
	if t := obj.GetDeletionTimestamp(); t == nil || t.Time.After(now) {
		stamp := metav1.NewTime(now).Rfc3339Copy()
		obj.SetDeletionTimestamp(&stamp)
	}
	var zero int64
	obj.SetDeletionGracePeriodSeconds(&zero)
	if r.Info.Deletion.Mark != nil {
		r.Info.Deletion.Mark(obj)
	}
}

func raiseGeneration(obj catalog.Object) {
	if g := obj.GetGeneration(); g > 0 {
		obj.SetGeneration(g + 1)
	}
}

// deletionFinalizers returns the finalizers of an object that is to be deleted. Those for dependents tell the garbage collector what to do with
// the dependents.
func (r *Registry) deletionFinalizers(have []string, opts *metav1.DeleteOptions) []string {
	orphan, foreground := r.dependents(have, opts)
	out := make([]string, 0, len(have)+1)
	for _, f := range have {
		if f != metav1.FinalizerOrphanDependents && f != metav1.FinalizerDeleteDependents {
			out = append(out, f)
		}
	}
	if orphan {
		out = append(out, metav1.FinalizerOrphanDependents)
	}
	if foreground {
		out = append(out, metav1.FinalizerDeleteDependents)
	}
	if sameSet(out, have) {
		return have
	}
	return out
}

// dependents returns whether dependents are to be orphaned, or deleted in the foreground. The options decide, or else the object's finalizers, or else
// the default of the kind.
func (r *Registry) dependents(have []string, opts *metav1.DeleteOptions) (orphan, foreground bool) {
	switch {
	case r.Info.Deletion.NoDependents:
		return false, false
	case opts.OrphanDependents != nil:
		return *opts.OrphanDependents, false
	case opts.PropagationPolicy != nil:
		return *opts.PropagationPolicy == metav1.DeletePropagationOrphan, *opts.PropagationPolicy == metav1.DeletePropagationForeground
	}
	for _, f := range have {
		switch f {
		case metav1.FinalizerOrphanDependents:
			return true, false
		case metav1.FinalizerDeleteDependents:
			return false, true
		}
	}
	return r.Info.OrphanByDefault, false
}

func sameSet(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for _, s := range a {
		if !slices.Contains(b, s) {
			return false
		}
	}
	return true
}

// remove removes an object from the store, at the version current.
func (r *Registry) remove(ctx context.Context, key string, obj catalog.Object, current *cache.Item, w Write) (*cache.Item, bool, error) {
	if w.DryRun {
		return current, true, r.checkNewest(ctx, key, current)
	}
	revision, err := r.store.Delete(ctx, r.storeKey(key), current.Revision)
	if err != nil {
		return nil, false, r.conflictOrFailure(err)
	}
	r.afterDelete(ctx, obj)
	last := current.At(revision)
	return last, true, nil
}

// checkPreconditions returns a Conflict if an object has another UID or resourceVersion than the preconditions.
func (r *Registry) checkPreconditions(obj catalog.Object, p *metav1.Preconditions) error {
	if p == nil {
		return nil
	}
	gr := schema.GroupResource{Group: r.Info.GVK.Group, Resource: r.Info.GVK.Kind}
	if p.UID != nil && *p.UID != obj.GetUID() {
		return apierrors.NewConflict(gr, obj.GetName(), fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, obj.GetUID()))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion() {
		return apierrors.NewConflict(gr, obj.GetName(), fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, obj.GetResourceVersion()))
	}
	return nil
}
