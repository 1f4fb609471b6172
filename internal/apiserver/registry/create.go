package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"

	"skiff/internal/apiserver/codec"
	"skiff/internal/cache"
	"skiff/internal/catalog"
	"skiff/internal/store"
)

// Write is what creates, updates and deletes have in common.
type Write struct {
	DryRun bool
	// Validate is called last, with the object as it will be stored. old is nil on create, obj is nil on delete. It may be nil.
	Validate func(ctx context.Context, obj, old catalog.Object) error
	// Stage is called with the name of the next step of the write, for traces. It may be nil.
	Stage func(name string)
	// RulesRun is called with what the CEL rules of the kind took to validate the object, for traces. It may be nil.
	RulesRun func(*catalog.RulesRun)
	Warn     func(warning string)
	Request  catalog.Request
	// Initialization has the initializers of the object. If it is nil, a new object has none, and another keeps what it has.
	Initialization *Initialization
}

func (w Write) stage(name string) {
	if w.Stage != nil {
		w.Stage(name)
	}
}

func (w Write) warn(warnings []string) {
	for _, text := range warnings {
		w.Warn(text)
	}
}

func (w Write) validate(ctx context.Context, obj, old catalog.Object) error {
	if w.Validate == nil {
		return nil
	}
	return w.Validate(ctx, obj, old)
}

// maxNameTries bounds how many names are generated for one create, if they exist already.
const maxNameTries = 8

// Create stores a new object, which must have its defaults and be admitted, and returns the item that was stored. The object belongs to the registry
// from here on.
func (r *Registry) Create(ctx context.Context, obj catalog.Object, w Write) (*cache.Item, error) {
	generate := obj.GetName() == "" && obj.GetGenerateName() != ""
	for try := 1; ; try++ {
		candidate := obj
		if generate {
			candidate = obj.DeepCopyObject().(catalog.Object)
			candidate.SetName(GenerateName(obj.GetGenerateName()))
		}
		it, err := r.create(ctx, candidate, w)
		if !generate || !apierrors.IsAlreadyExists(err) {
			return it, err
		}
		if try == maxNameTries {
			return nil, apierrors.NewGenerateNameConflict(r.Resource(), candidate.GetName(), 1)
		}
	}
}

// GenerateName returns base with five random characters appended, shortened to 63 characters in all.
func GenerateName(base string) string {
	const suffix, longest = 5, 63
	return base[:min(len(base), longest-suffix)] + rand.String(suffix)
}

// FillSystemMetadata sets the metadata of a new object that the server decides: uid, creationTimestamp, and no deletion.
func FillSystemMetadata(obj metav1.Object, now time.Time) {
	obj.SetSelfLink("")
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetCreationTimestamp(metav1.NewTime(now).Rfc3339Copy())
	obj.SetUID(uuid.NewUUID())
}

// create stores a new object that has a name.
func (r *Registry) create(ctx context.Context, obj catalog.Object, w Write) (*cache.Item, error) {
	w.stage("validation")
	FillSystemMetadata(obj, w.Request.Now)
	begun, err := r.beginCreate(ctx, obj, w.DryRun)
	if err != nil {
		return nil, err
	}
	it, err := r.validateAndInsert(ctx, obj, w)
	begun.finish(err, w.DryRun)
	return it, err
}

// validateAndInsert prepares and validates a new object, and stores it.
func (r *Registry) validateAndInsert(ctx context.Context, obj catalog.Object, w Write) (*cache.Item, error) {
	errs := r.Info.BeforeCreate(obj, w.Request)
	r.rulesRun(obj, w)
	if len(errs) > 0 {
		return nil, r.invalid(obj.GetName(), errs)
	}
	w.warn(r.Info.Warnings(obj, nil))
	if err := w.validate(ctx, obj, nil); err != nil {
		return nil, err
	}
	return r.insert(ctx, obj, w)
}

// rulesRun hands on what the CEL rules of the object took.
func (r *Registry) rulesRun(obj catalog.Object, w Write) {
	if r.Info.RulesRun == nil {
		return
	}
	if run := r.Info.RulesRun(obj); run != nil && w.RulesRun != nil {
		w.RulesRun(run)
	}
}

// insert stores a new object that is valid.
func (r *Registry) insert(ctx context.Context, obj catalog.Object, w Write) (*cache.Item, error) {
	obj.SetResourceVersion("")
	obj, err := r.toStorage(ctx, obj)
	if err != nil {
		return nil, err
	}
	value, message, err := r.encode(obj, w.Initialization.after())
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	key := r.Key(obj.GetNamespace(), obj.GetName())
	w.stage("store")
	if w.DryRun {
		if _, _, err := r.store.Get(ctx, r.storeKey(key)); err == nil {
			return nil, apierrors.NewAlreadyExists(r.Resource(), obj.GetName())
		} else if !errors.Is(err, store.ErrNotFound) {
			return nil, r.failure(err)
		}
		return r.item(key, obj, message, 0), nil
	}
	it, err := r.put(ctx, key, obj, nil, value, message, 0)
	if err != nil {
		return nil, r.alreadyExists(ctx, key, obj.GetName(), err)
	}
	return it, nil
}

// toStorage returns an object in the version in which it is stored.
func (r *Registry) toStorage(ctx context.Context, obj catalog.Object) (catalog.Object, error) {
	if r.Info.ToStorage == nil {
		return obj, nil
	}
	return r.Info.ToStorage(ctx, obj)
}

// put writes the encoded object to the store if the object is still at a revision (0: does not exist), and returns the item that the cache will hold.
// old is the object that it replaces; nil if there is none.
func (r *Registry) put(ctx context.Context, key string, obj, old catalog.Object, value, message []byte, ifRevision int64) (*cache.Item, error) {
	value, err := r.seal(ctx, key, value)
	if err != nil {
		return nil, err
	}
	write := r.Cache.BeginWrite(key, value, func(revision int64) *cache.Item { return r.item(key, obj, message, revision) })
	revision, err := r.store.Put(ctx, r.storeKey(key), value, store.PutOptions{IfRevision: ifRevision, TTL: r.ttl, Class: r.class(ctx, obj, old)})
	if err != nil {
		r.Cache.AbortWrite(write)
		return nil, err
	}
	return write.Item(revision), nil
}

// alreadyExists returns the error of a create, given the error of the store: AlreadyExists if there is an object of that name.
func (r *Registry) alreadyExists(ctx context.Context, key, name string, err error) error {
	var conflict *store.ConflictError
	if !errors.As(err, &conflict) {
		return r.failure(err)
	}
	exists := apierrors.NewAlreadyExists(r.Resource(), name)
	if conflict.Current != nil {
		if it, err := r.parse(ctx, key, *conflict.Current); err == nil {
			if there, err := codec.Metadata(it.Raw()); err == nil && there.GetDeletionTimestamp() != nil {
				exists.ErrStatus.Message = "object is being deleted: " + exists.ErrStatus.Message
			}
		}
	}
	return exists
}

func (r *Registry) item(key string, obj catalog.Object, message []byte, revision int64) *cache.Item {
	it := r.Codec.Item(obj, message, revision)
	it.Key = key
	return it
}

// CheckUID returns a Conflict if an object does not have the UID that is wanted.
func (r *Registry) CheckUID(obj catalog.Object, want *types.UID) error {
	if want == nil || *want == "" || *want == obj.GetUID() {
		return nil
	}
	return apierrors.NewConflict(r.Resource(), obj.GetName(), fmt.Errorf( // in upstream's words
		"StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: %v, UID in object meta: %v",
		r.storeKey(r.Key(obj.GetNamespace(), obj.GetName())), *want, obj.GetUID()))
}

// EnsureNamespace sets an object's namespace to that of the request. It fails if the object has another.
func EnsureNamespace(obj metav1.Object, namespace string) error {
	switch own := obj.GetNamespace(); {
	case own == namespace:
		return nil
	case own == "" || namespace == "":
		obj.SetNamespace(namespace)
		return nil
	default:
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
}
