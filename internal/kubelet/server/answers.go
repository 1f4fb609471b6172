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
	askTime     = 10 * time.Second // for a question to the API, with all tries
	maxAskTries = 4
	askPause    = 200 * time.Millisecond // after the first try; then it doubles
)

// answers remembers what the API said. The same question by several clients at once is asked once. Good and bad answers are kept apart, so that
// clients who get bad ones cannot push out the good ones of others.
type answers[K comparable, V any] struct {
	good, bad *lru.Cache
	isGood    func(V) bool
	asking    singleflight.Group
	limit     *limiter // of questions that are not known to have a good answer
}

type remembered[V any] struct {
	value V
	until time.Time
}

func newAnswers[K comparable, V any](most int, limit *limiter, isGood func(V) bool) *answers[K, V] {
	return &answers[K, V]{good: lru.New(most), bad: lru.New(most), isGood: isGood, limit: limit}
}

// get returns what is known, or asks. The question says how long its answer holds. If it cannot be asked, it is tried a few times more. Whoever
// asks for too much that has no good answer, which on counts by, gets errTooMany.
func (a *answers[K, V]) get(ctx context.Context, key K, on string, ask func(context.Context) (V, time.Duration, error)) (V, error) {
	wasGood := false
	for _, kept := range []*lru.Cache{a.good, a.bad} {
		if v, ok := kept.Get(key); ok {
			r := v.(remembered[V])
			if time.Now().Before(r.until) {
				return r.value, nil
			}
			wasGood = wasGood || kept == a.good
		}
	}
	answered := a.asking.DoChan(fmt.Sprint(key), func() (any, error) {
		if !wasGood && !a.limit.take(on, time.Now()) {
			return nil, errTooMany
		}
		// Others may wait for this, whatever becomes of the client that came first.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
		defer cancel()
		value, holds, err := persist(ctx, ask)
		if err != nil || holds == 0 {
			return value, err
		}
		keep, drop := a.bad, a.good
		if a.isGood(value) {
			keep, drop = drop, keep
			if !wasGood {
				a.limit.giveBack(on)
			}
		}
		drop.Remove(key)
		keep.Add(key, remembered[V]{value, time.Now().Add(holds)})
		return value, err
	})
	select {
	case r := <-answered:
		value, _ := r.Val.(V)
		return value, r.Err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

func persist[V any](ctx context.Context, ask func(context.Context) (V, time.Duration, error)) (value V, holds time.Duration, err error) {
	for try := range maxAskTries {
		if value, holds, err = ask(ctx); err == nil || !passing(err) || try == maxAskTries-1 {
			return value, holds, err
		}
		select {
		case <-time.After(askPause << try):
		case <-ctx.Done():
			return value, 0, err
		}
	}
	return value, holds, err
}

// passing reports whether a question may be answered if it is asked again.
func passing(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests
	}
	return true // it did not get there
}
