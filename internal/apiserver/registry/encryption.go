package registry

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/cache"
	"skiff/internal/store"
)

// seal returns what is stored for the encoded object under a key: the value itself if nothing is encrypted.
func (r *Registry) seal(ctx context.Context, key string, value []byte) ([]byte, error) {
	if r.transformer == nil {
		return value, nil
	}
	sealed, err := r.transformer.ToStorage(ctx, r.storeKey(key), value)
	if err != nil {
		return nil, apierrors.NewInternalError(err) // nothing was written
	}
	return sealed, nil
}

// open returns the encoded object of what is stored. stale reports that it would be encrypted in another way today.
func (r *Registry) open(ctx context.Context, kv store.KV) (value []byte, stale bool, err error) {
	if r.transformer == nil {
		return kv.Value, false, nil
	}
	return r.transformer.FromStorage(ctx, kv.Key, kv.Value)
}

// parse returns the item of what is stored.
func (r *Registry) parse(ctx context.Context, key string, kv store.KV) (*cache.Item, error) {
	value, _, err := r.open(ctx, kv)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return r.decode(key, value, kv.Revision)
}

// parseListed is parse for one of several objects: its error names the object.
func (r *Registry) parseListed(ctx context.Context, key string, kv store.KV) (*cache.Item, error) {
	value, err := r.openListed(ctx, kv)
	if err != nil {
		return nil, err
	}
	return r.decode(key, value, kv.Revision)
}

func (r *Registry) openListed(ctx context.Context, kv store.KV) ([]byte, error) {
	value, _, err := r.open(ctx, kv)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("unable to transform key %q: %w", kv.Key, err))
	}
	return value, nil
}

func (r *Registry) decode(key string, value []byte, revision int64) (*cache.Item, error) {
	it, err := r.Codec.Parse(value, revision)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	it.Key = key
	return it, nil
}
