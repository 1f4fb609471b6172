package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/lru"

	"golang.org/x/sync/singleflight"
)

const (
	reviewTimeout     = 10 * time.Second // the timeout of a review, with all attempts
	maxReviewAttempts = 4
	firstReviewRetry  = 200 * time.Millisecond // the pause after the first attempt; it doubles
)

// reviewCache caches TokenReviews and SubjectAccessReviews. Concurrent reviews with the same key become one. Positive and negative results are kept apart, so
// that clients who get negative ones cannot evict the positive ones of others.
type reviewCache[K comparable, V any] struct {
	positive, negative *lru.Cache
	isPositive         func(V) bool
	inFlight           singleflight.Group
	limit              *limiter // limits reviews that are not known to have a positive result
}

type cachedReview[V any] struct {
	value   V
	expires time.Time
}

func newReviewCache[K comparable, V any](most int, limit *limiter, isPositive func(V) bool) *reviewCache[K, V] {
	return &reviewCache[K, V]{positive: lru.New(most), negative: lru.New(most), isPositive: isPositive, limit: limit}
}

// get returns the cached result, or that of review, which also returns its TTL. A review that fails is retried maxReviewAttempts times. It returns
// errTooManyReviews when source has had too many reviews without a positive result.
func (a *reviewCache[K, V]) get(ctx context.Context, key K, source string, review func(context.Context) (V, time.Duration, error)) (V, error) {
	if value, known, _ := a.cached(key); known {
		return value, nil
	}
	done := a.inFlight.DoChan(fmt.Sprint(key), func() (any, error) {
		value, known, wasPositive := a.cached(key)
		if known { // another review has ended since get looked
			return value, nil
		}
		if !wasPositive && !a.limit.take(source, time.Now()) {
			return nil, errTooManyReviews
		}
		// Other clients may wait for this, so it goes on if the first one leaves.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
		defer cancel()
		value, ttl, err := withRetries(ctx, review)
		if err != nil || ttl == 0 {
			return value, err
		}
		keep, drop := a.negative, a.positive
		if a.isPositive(value) {
			keep, drop = drop, keep
			if !wasPositive {
				a.limit.giveBack(source)
			}
		}
		drop.Remove(key)
		keep.Add(key, cachedReview[V]{value, time.Now().Add(ttl)})
		return value, err
	})
	select {
	case r := <-done:
		value, _ := r.Val.(V)
		return value, r.Err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

// cached returns the result that the cache has for a key. known reports whether it has one that has not expired, wasPositive whether an expired one is positive.
func (a *reviewCache[K, V]) cached(key K) (value V, known, wasPositive bool) {
	for _, cache := range []*lru.Cache{a.positive, a.negative} {
		if v, ok := cache.Get(key); ok {
			r := v.(cachedReview[V])
			if time.Now().Before(r.expires) {
				return r.value, true, false
			}
			wasPositive = wasPositive || cache == a.positive
		}
	}
	return value, false, wasPositive
}

// withRetries calls review until it succeeds or fails for good.
func withRetries[V any](ctx context.Context, review func(context.Context) (V, time.Duration, error)) (value V, ttl time.Duration, err error) {
	for try := range maxReviewAttempts {
		if value, ttl, err = review(ctx); err == nil || !isTransient(err) || try == maxReviewAttempts-1 {
			return value, ttl, err
		}
		select {
		case <-time.After(firstReviewRetry << try):
		case <-ctx.Done():
			return value, 0, err
		}
	}
	return value, ttl, err
}

// isTransient reports whether a review that failed may succeed when it is retried.
func isTransient(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests
	}
	return true // it did not reach the API server
}
