package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/encryption"
	"skiff/internal/cache"
	"skiff/internal/catalog"
	"skiff/internal/store"
)

// Registry reads and writes the objects of one stored resource.
type Registry struct {
	Info  *catalog.Info
	Cache *cache.Cache
	Codec *codec.Stored

	hooks  []Hooks // in the order in which they were added
	store  store.Store
	feed   *cache.Feed
	prefix string // with which the keys of its objects in the store begin
	ttl    time.Duration
	scans  scanBounds

	conversions conversions
	transformer encryption.Transformer // nil if nothing is encrypted
}

// Options are the options of a registry.
type Options struct {
	Store  store.Store
	Feed   *cache.Feed
	Root   string // with which the keys of all resources begin: "/registry/"
	AsJSON bool
	TTL    time.Duration // of the objects of kinds that expire
	// Encryption encrypts what is stored; nothing is encrypted if it is nil.
	Encryption *encryption.Encryption
}

// New returns the registry of a resource. The feed must have a cache for it: see Kind.
func New(info *catalog.Info, opts Options) *Registry {
	r := &Registry{Info: info, store: opts.Store, feed: opts.Feed, Codec: codec.NewStored(info, opts.AsJSON), prefix: opts.Root + info.StorageName + "/", scans: defaultScan}
	r.Cache = opts.Feed.Cache(info.StorageName)
	if info.Expires {
		r.ttl = opts.TTL
	}
	if opts.Encryption != nil {
		r.transformer = opts.Encryption.ForResource(info.GVR.GroupResource())
	}
	return r
}

// Kind returns the declaration of a resource for the cache, in which the registry of the same options finds its objects.
func Kind(info *catalog.Info, opts Options) cache.Kind {
	c := codec.NewStored(info, false)
	k := cache.Kind{Name: info.GVR.GroupResource().String(), Prefix: opts.Root + info.StorageName + "/", Parse: c.Parse, Decode: c.Object, Uncached: info.Uncached}
	if opts.Encryption != nil {
		transformer := opts.Encryption.ForResource(info.GVR.GroupResource())
		k.Open = func(ctx context.Context, key string, stored []byte) ([]byte, error) {
			value, _, err := transformer.FromStorage(ctx, key, stored)
			return value, err
		}
	}
	return k
}

// Key returns the key of an object within its resource.
func (r *Registry) Key(namespace, name string) string {
	if r.Info.Namespaced {
		return namespace + "/" + name
	}
	return name
}

func (r *Registry) storeKey(key string) string { return r.prefix + key }

// Resource returns the name of the resource, for errors.
func (r *Registry) Resource() schema.GroupResource { return r.Info.GVR.GroupResource() }

// Get returns an object no older than resourceVersion asks: "" means every acknowledged write is seen, "0" that any state will do.
func (r *Registry) Get(ctx context.Context, namespace, name, resourceVersion string) (*cache.Item, error) {
	if r.Info.Uncached {
		return r.getUncached(ctx, namespace, name, resourceVersion)
	}
	if err := r.WaitFor(ctx, resourceVersion); err != nil {
		return nil, err
	}
	key := r.Key(namespace, name)
	if it := r.Cache.Get(key); it != nil {
		return it, nil
	}
	if err := r.Cache.Unreadable(key); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return nil, apierrors.NewNotFound(r.Resource(), name)
}

// GetUninitialized is Get, also for an object that still waits for its initializers.
func (r *Registry) GetUninitialized(ctx context.Context, namespace, name, resourceVersion string) (*cache.Item, error) {
	if r.Info.Uncached {
		return r.readUncached(ctx, namespace, name, resourceVersion)
	}
	if err := r.WaitFor(ctx, resourceVersion); err != nil {
		return nil, err
	}
	if it := r.Cache.GetUninitialized(r.Key(namespace, name)); it != nil {
		return it, nil
	}
	return nil, apierrors.NewNotFound(r.Resource(), name)
}

// WaitFor waits until the cache has what a read at resourceVersion may see: see Get.
func (r *Registry) WaitFor(ctx context.Context, resourceVersion string) error {
	switch resourceVersion {
	case "0":
		return nil
	case "":
		return r.failure(r.feed.Fresh(ctx))
	}
	revision, err := ParseResourceVersion(resourceVersion)
	if err != nil {
		return err
	}
	return r.waitForRevision(ctx, revision)
}

// tooLargeWait is how long a read waits for a revision that is newer than the cache.
const tooLargeWait = 3 * time.Second

func (r *Registry) waitForRevision(ctx context.Context, revision int64) error {
	if r.feed.Revision() >= revision {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, tooLargeWait)
	defer cancel()
	err := r.feed.WaitFor(wait, revision)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return tooLarge(revision, r.feed.Revision())
	}
	return r.failure(err)
}

func tooLarge(asked, current int64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", asked, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}

// ParseResourceVersion parses a resourceVersion that a client has sent; 0 if it is empty.
func ParseResourceVersion(s string) (int64, error) {
	if s == "" || s == "0" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", field.Invalid(field.NewPath("resourceVersion"), s, err.Error())))
	}
	return int64(n), nil
}

// Failure returns the API error for an error of the store.
func (r *Registry) Failure(err error) error { return r.failure(err) }

// invalid returns the error for an object with validation errors, without duplicates.
func (r *Registry) invalid(name string, errs field.ErrorList) error {
	seen := make(map[string]bool, len(errs))
	once := errs[:0]
	for _, e := range errs {
		if text := e.Error(); !seen[text] {
			seen[text] = true
			once = append(once, e)
		}
	}
	return apierrors.NewInvalid(r.Info.GVK.GroupKind(), name, once)
}

// failure returns the API error for an error of the store.
func (r *Registry) failure(err error) error {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return nil
	case errors.As(err, &status):
		return err
	case errors.Is(err, store.ErrTooLarge):
		return apierrors.NewRequestEntityTooLargeError(err.Error())
	case errors.Is(err, store.ErrFull):
		return withCode(apierrors.NewInternalError(err), http.StatusInsufficientStorage)
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrClosed):
		return apierrors.NewServiceUnavailable(err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Timeout()
	default:
		// The outcome is unknown, and the client must read the object: there is no Retry-After, after which client-go would repeat the write.
		return apierrors.NewTimeoutError("the outcome of the write is unknown: "+err.Error(), 0)
	}
}

// Timeout returns the error of a request that has exceeded its deadline.
func Timeout() error {
	return apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0)
}

func withCode(err *apierrors.StatusError, code int32) error {
	err.ErrStatus.Code = code
	return err
}
