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

// answers remembers what the API said. The same question by several clients at once is asked once.
type answers[K comparable, V any] struct {
	known  *lru.Cache
	asking singleflight.Group
}

type remembered[V any] struct {
	value V
	until time.Time
}

func newAnswers[K comparable, V any](most int) *answers[K, V] {
	return &answers[K, V]{known: lru.New(most)}
}

// get returns what is known, or asks. The question says how long its answer holds. If it cannot be asked, it is tried a few times more.
func (a *answers[K, V]) get(ctx context.Context, key K, ask func(context.Context) (V, time.Duration, error)) (V, error) {
	if v, ok := a.known.Get(key); ok {
		if r := v.(remembered[V]); time.Now().Before(r.until) {
			return r.value, nil
		}
	}
	answered := a.asking.DoChan(fmt.Sprint(key), func() (any, error) {
		// Others may wait for this, whatever becomes of the client that came first.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
		defer cancel()
		value, holds, err := persist(ctx, ask)
		if err == nil && holds > 0 {
			a.known.Add(key, remembered[V]{value, time.Now().Add(holds)})
		}
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

// passing says whether a question may be answered if it is asked again.
func passing(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests
	}
	return true // it did not get there
}
