package registry

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/apiserver/managedfields"
	"skiff/internal/cache"
	"skiff/internal/catalog"
	"skiff/internal/store"
)

// Update is a change of one object.
type Update struct {
	Namespace, Name string
	// Edit is the subresource through which the object is updated; nil for the object itself.
	Edit *catalog.EditInfo
	// Transform returns the new object, given the current one, which it may keep or change. It is called again if another client updates the object
	// meanwhile. current is nil if there is no object and CreateMissing is set.
	Transform func(ctx context.Context, current catalog.Object) (catalog.Object, error)
	// CreateMissing creates the object if it does not exist.
	CreateMissing bool
	// Unconditional allows an object without a resourceVersion to replace any version.
	Unconditional bool
	// Unchecked skips the preparation, validation and hooks of updates, so that Transform alone is responsible for the object. It is cheaper: the
	// object is decoded once.
	Unchecked bool
	UID       *types.UID
	Write
}

// maxUpdateTries bounds how often a write is tried that conflicts with others.
const maxUpdateTries = 100

const modified = "the object has been modified; please apply your changes to the latest version and try again"

// Update changes an object. created reports that it did not exist before.
//
// The object is first taken from the cache, which may lag behind the store. Whatever speaks against the update is therefore checked against the newest
// version in the store before the update is refused, and an update that another overtook is tried again on what that one wrote.
func (r *Registry) Update(ctx context.Context, u Update) (it *cache.Item, created bool, err error) {
	key := r.Key(u.Namespace, u.Name)
	current, fromStore := r.Cache.Newest(key), false
	if current == nil {
		if current, err = r.read(ctx, key); err != nil {
			return nil, false, err
		}
		fromStore = true
	}
	for range maxUpdateTries {
		if current != nil {
			if it, err = r.replace(ctx, key, current, u); err == nil {
				return it, false, nil
			}
			if current, err = r.newerThan(ctx, key, current, fromStore, err); err != nil {
				return nil, false, err
			}
			fromStore = true
			continue
		}
		it, exists, err := r.createMissing(ctx, u)
		if !exists {
			return it, true, err
		}
		if current, err = r.read(ctx, key); err != nil {
			return nil, false, err
		}
		fromStore = true
	}
	return nil, false, apierrors.NewConflict(r.Resource(), u.Name, errors.New(modified))
}

// createMissing creates the object that an update found missing, if the update may. exists reports that somebody else has created it meanwhile.
func (r *Registry) createMissing(ctx context.Context, u Update) (it *cache.Item, exists bool, err error) {
	if !u.CreateMissing {
		return nil, false, apierrors.NewNotFound(r.Resource(), u.Name)
	}
	u.Initialization.begin(nil)
	obj, err := u.Transform(ctx, nil)
	if err != nil {
		return nil, false, err
	}
	it, err = r.create(ctx, obj, u.Write)
	return it, apierrors.IsAlreadyExists(err), err
}

// newerThan returns the version of an object to try a write on again that failed on tried; nil is an object that does not exist any more. It returns
// the failure itself if trying again would not help. fromStore says that tried came from the store.
func (r *Registry) newerThan(ctx context.Context, key string, tried *cache.Item, fromStore bool, failure error) (*cache.Item, error) {
	var conflict *store.ConflictError
	switch {
	case errors.As(failure, &conflict):
		return r.currentOf(ctx, conflict, key)
	case fromStore, errors.As(failure, new(storeFailure)):
		return nil, failure // a write that failed in the store is not repeated: it may have happened
	}
	newest, err := r.read(ctx, key)
	if err != nil {
		return nil, err
	}
	if newest != nil && newest.Revision == tried.Revision {
		return nil, failure
	}
	return newest, nil
}

// read returns the newest version of an object from the store, or nil.
func (r *Registry) read(ctx context.Context, key string) (*cache.Item, error) {
	kv, _, err := r.store.Get(ctx, r.storeKey(key))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, r.failure(err)
	}
	return r.parse(ctx, key, kv)
}

func (r *Registry) currentOf(ctx context.Context, conflict *store.ConflictError, key string) (*cache.Item, error) {
	if conflict.Current == nil {
		return nil, nil
	}
	return r.parse(ctx, key, *conflict.Current)
}

// replace tries once to replace the current version of an object. A *store.ConflictError means that another write came first.
func (r *Registry) replace(ctx context.Context, key string, current *cache.Item, u Update) (*cache.Item, error) {
	old, err := r.Object(ctx, current)
	if err != nil {
		return nil, err
	}
	if err := r.CheckUID(old, u.UID); err != nil {
		return nil, err
	}
	u.Initialization.begin(current)
	given := old
	if !u.Unchecked {
		if given, err = r.Object(ctx, current); err != nil {
			return nil, err
		}
	}
	obj, err := u.Transform(ctx, given)
	if err != nil {
		return nil, err
	}
	if u.Unchecked {
		return r.save(ctx, key, obj, old, current, u.Write)
	}
	u.stage("validation")
	if err := r.checkVersion(obj, old, u); err != nil {
		return nil, err
	}
	if err := EnsureNamespace(obj, u.Namespace); err != nil {
		return nil, err
	}
	if u.Edit != nil {
		return r.validateAndSave(ctx, key, obj, old, current, u)
	}
	begun, err := r.beginUpdate(ctx, obj, old, u.DryRun)
	if err != nil {
		return nil, err
	}
	it, err := r.validateAndSave(ctx, key, obj, old, current, u)
	begun.finish(err, u.DryRun)
	return it, err
}

// validateAndSave prepares and validates a changed object, and stores it.
func (r *Registry) validateAndSave(ctx context.Context, key string, obj, old catalog.Object, current *cache.Item, u Update) (*cache.Item, error) {
	before := r.Info.BeforeUpdate
	if u.Initialization.uninitialized() && u.Edit == nil {
		before = r.Info.BeforeInitialization
	}
	errs := before(catalog.WithWarnings(ctx, u.Warn), obj, old, u.Edit)
	r.rulesRun(obj, u.Write)
	if len(errs) > 0 {
		return nil, r.invalid(obj.GetName(), errs)
	}
	if u.Edit == nil {
		u.warn(r.Info.Warnings(obj, old))
	} else {
		u.warn(u.Edit.Warnings(obj, old))
	}
	if err := u.validate(ctx, obj, old); err != nil {
		return nil, err
	}
	return r.save(ctx, key, obj, old, current, u.Write)
}

// checkVersion refuses an object whose resourceVersion is not the current one.
func (r *Registry) checkVersion(obj, old catalog.Object, u Update) error {
	switch version := obj.GetResourceVersion(); {
	case version == old.GetResourceVersion():
		return nil
	case version == "" || version == "0":
		if u.Unconditional {
			obj.SetResourceVersion(old.GetResourceVersion())
			return nil
		}
		return apierrors.NewInvalid(schema.GroupKind{Group: r.Info.GVR.Group, Kind: r.Info.GVR.Resource}, obj.GetName(), field.ErrorList{
			field.Invalid(field.NewPath("metadata").Child("resourceVersion"), 0, "must be specified for an update")})
	default:
		return apierrors.NewConflict(r.Resource(), obj.GetName(), errors.New(modified))
	}
}

// save writes the new version of an object to the store. It removes the object instead if this update has removed its last finalizer and it is marked
// for deletion, and it writes nothing if nothing has changed and the object is stored as it would be today.
func (r *Registry) save(ctx context.Context, key string, obj, old catalog.Object, current *cache.Item, w Write) (*cache.Item, error) {
	if !r.removes(obj, old) {
		obj.SetResourceVersion("")
		var err error
		if obj, err = r.toStorage(ctx, obj); err != nil {
			return nil, err
		}
	}
	return r.saveStored(ctx, key, obj, old, current, w)
}

// removes reports whether an update has removed the last finalizer of an object that is marked for deletion.
func (r *Registry) removes(obj, old catalog.Object) bool {
	return obj.GetDeletionTimestamp() != nil && !r.finalizing(obj) && (obj.GetDeletionGracePeriodSeconds() == nil || *obj.GetDeletionGracePeriodSeconds() == 0) && r.finalizing(old)
}

// saveStored is save for an object in the version in which it is to be stored.
func (r *Registry) saveStored(ctx context.Context, key string, obj, old catalog.Object, current *cache.Item, w Write) (*cache.Item, error) {
	obj.SetResourceVersion("")
	removed := r.removes(obj, old)
	pending := w.initializers(current)
	if !removed && managedfields.SameButTimes(obj.GetManagedFields(), old.GetManagedFields()) {
		newManagedFields := obj.GetManagedFields()
		obj.SetManagedFields(old.GetManagedFields())
		if same, err := sameMessage(obj, pending, current); err != nil {
			return nil, apierrors.NewInternalError(err)
		} else if same {
			if stale, err := r.isStale(ctx, key, current); err != nil || !stale {
				return current, err
			}
		}
		obj.SetManagedFields(newManagedFields)
	}
	value, message, err := r.encode(obj, pending)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	w.stage("store")
	if w.DryRun {
		if err := r.checkNewest(ctx, key, current); err != nil {
			return nil, err
		}
		return r.item(key, obj, message, current.Revision), nil
	}
	if removed {
		if _, err := r.store.Delete(ctx, r.storeKey(key), current.Revision); err != nil {
			return nil, r.conflictOrFailure(err)
		}
		r.afterDelete(ctx, obj)
		return r.item(key, obj, message, current.Revision), nil
	}
	it, err := r.put(ctx, key, obj, old, value, message, current.Revision)
	if err != nil {
		return nil, r.conflictOrFailure(err)
	}
	if pending.Failed() {
		return r.removeRefused(ctx, key, obj, it, w)
	}
	return it, nil
}

// removeRefused removes an object that an initializer has just refused: nothing has seen it, so that neither finalizers nor a grace period keep it. Who waits
// for it has observed the refusal. If it was changed meanwhile, the next update removes it.
func (r *Registry) removeRefused(ctx context.Context, key string, obj catalog.Object, it *cache.Item, w Write) (*cache.Item, error) {
	removed, _, err := r.remove(ctx, key, obj, it, w)
	if errors.As(err, new(*store.ConflictError)) {
		return it, nil
	}
	return removed, err
}

// isStale reports whether the stored value of an object is of another version or encoding than would be written today, or encrypted by another key. It returns
// a conflict if current is not the newest version.
func (r *Registry) isStale(ctx context.Context, key string, current *cache.Item) (bool, error) {
	newest, err := r.newest(ctx, key, current)
	if err != nil {
		return false, err
	}
	value, stale, err := r.open(ctx, newest)
	// A value that cannot be decrypted any more is the one that current has: writing it saves the object.
	return err != nil || stale || r.Codec.Stale(value), nil
}

// checkNewest returns a conflict if current is not the newest version in the store, for writes that write nothing: dry runs, and updates without a
// change.
func (r *Registry) checkNewest(ctx context.Context, key string, current *cache.Item) error {
	_, err := r.newest(ctx, key, current)
	return err
}

// newest returns an object as it is stored, or a conflict if current is not the newest version in the store.
func (r *Registry) newest(ctx context.Context, key string, current *cache.Item) (store.KV, error) {
	newest, _, err := r.store.Get(ctx, r.storeKey(key))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return store.KV{}, &store.ConflictError{Key: key}
	case err != nil:
		return store.KV{}, r.failure(err)
	case newest.Revision != current.Revision:
		return store.KV{}, &store.ConflictError{Key: key, Current: &newest}
	}
	return newest, nil
}

// storeFailure is the API error for an error of the store, as opposed to a refusal of the object.
type storeFailure struct{ error }

// Unwrap returns the API error.
func (f storeFailure) Unwrap() error { return f.error }

// conflictOrFailure returns a *store.ConflictError, after which a write is tried again, or else a storeFailure.
func (r *Registry) conflictOrFailure(err error) error {
	var conflict *store.ConflictError
	switch {
	case errors.As(err, &conflict):
		return err
	case errors.Is(err, store.ErrNotFound):
		return &store.ConflictError{}
	default:
		return storeFailure{r.failure(err)}
	}
}

// finalizing reports whether finalizers keep an object that is deleted from being removed.
func (r *Registry) finalizing(obj catalog.Object) bool {
	return len(obj.GetFinalizers()) > 0 || r.Info.Deletion.Finalizing != nil && r.Info.Deletion.Finalizing(obj)
}
