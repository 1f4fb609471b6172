package tokencache_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authn/tokencache"
)

// tokens answers by what the token begins with, and counts.
type tokens struct {
	calls atomic.Int32
	delay time.Duration
}

func (f *tokens) AuthenticateToken(ctx context.Context, token string, audiences []string) (*authn.User, []string, error) {
	f.calls.Add(1)
	if f.delay > 0 {
		select {
		case <-time.After(f.delay):
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	switch {
	case strings.HasPrefix(token, "bad"):
		return nil, nil, errors.New("no server")
	case strings.HasPrefix(token, "crash"):
		panic("boom")
	case strings.HasPrefix(token, "unknown"):
		return nil, nil, nil
	}
	return &authn.User{Username: token}, audiences, nil
}

const maxLookups = 256

func newCache(f *tokens, ttl time.Duration, failures bool) *tokencache.Cache {
	return tokencache.New(f, tokencache.Options{TTL: ttl, Failures: failures, MaxLookups: maxLookups, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)})
}

func TestWhatIsRemembered(t *testing.T) {
	for _, c := range []struct {
		name, token string
		ttl         time.Duration
		failures    bool
		after       time.Duration
		want        int32 // calls for two requests
	}{
		{"a user", "anna", time.Second, false, 0, 1},
		{"a user, for a second", "anna", time.Second, false, time.Second + 1, 2},
		{"nothing", "anna", 0, true, 0, 2},
		{"no failure", "unknown", time.Second, false, 0, 2},
		{"a failure", "unknown", time.Second, true, 0, 1},
		{"no error", "bad", time.Second, true, 0, 2},
		{"no crash", "crash", time.Second, true, 0, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &tokens{}
				cache := newCache(f, c.ttl, c.failures)
				user, _, err := cache.AuthenticateToken(t.Context(), c.token, nil)
				time.Sleep(c.after)
				again, _, errAgain := cache.AuthenticateToken(t.Context(), c.token, nil)
				if fmt.Sprint(user, err) != fmt.Sprint(again, errAgain) || (err != nil) != (c.token == "bad" || c.token == "crash") || (user != nil) != (c.token == "anna") {
					t.Errorf("got %v, %v and then %v, %v", user, err, again, errAgain)
				}
				if got := f.calls.Load(); got != c.want {
					t.Errorf("asked %d times, want %d", got, c.want)
				}
			})
		})
	}
}

// TestKeys: tokens and audiences are not mixed up.
func TestKeys(t *testing.T) {
	f := &tokens{}
	cache := newCache(f, time.Hour, false)
	for i, c := range []struct {
		token     string
		audiences []string
	}{{"ab", nil}, {"a", []string{"b"}}, {"a", []string{"b", ""}}, {"a", []string{"", "b"}}, {"a", nil}} {
		user, audiences, err := cache.AuthenticateToken(t.Context(), c.token, c.audiences)
		if err != nil || user.Username != c.token || fmt.Sprint(audiences) != fmt.Sprint(c.audiences) || int(f.calls.Load()) != i+1 {
			t.Errorf("%v: got %v, %v, %v", c, user, audiences, err)
		}
	}
}

// TestTogether: requests with the same token wait for one lookup, which goes on when the first of them ends.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &tokens{delay: time.Second}
		cache := newCache(f, time.Hour, false)
		var together sync.WaitGroup
		short, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		together.Go(func() {
			if user, _, err := cache.AuthenticateToken(short, "anna", nil); user != nil || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, %v", user, err)
			}
		})
		synctest.Wait()
		for range 20 {
			together.Go(func() {
				if user, _, err := cache.AuthenticateToken(t.Context(), "anna", nil); err != nil || user.Username != "anna" {
					t.Errorf("got %v, %v", user, err)
				}
			})
		}
		together.Wait()
		if got := f.calls.Load(); got != 1 {
			t.Errorf("asked %d times", got)
		}
	})
}

// TestBounds: no more than maxLookups are under way, and no more than MaxEntries are remembered.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &tokens{delay: time.Second}
		cache := newCache(f, time.Hour, false)
		var together sync.WaitGroup
		ask := func(i int) {
			if _, _, err := cache.AuthenticateToken(t.Context(), fmt.Sprint(i), nil); err != nil {
				t.Error(err)
			}
		}
		for i := range tokencache.MaxEntries + 1 {
			together.Go(func() { ask(i) })
		}
		synctest.Wait()
		if got := f.calls.Load(); got != maxLookups {
			t.Errorf("%d lookups at once", got)
		}
		together.Wait()
		for i := range tokencache.MaxEntries + 1 { // in another order than before, so that which one is forgotten does not matter
			together.Go(func() { ask(tokencache.MaxEntries - i) })
		}
		together.Wait()
		if got := f.calls.Load(); got <= tokencache.MaxEntries+1 {
			t.Errorf("asked %d times: nothing was forgotten", got)
		}
	})
}

// TestLookupTimeout: a lookup that never ends is given up.
func TestLookupTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(&tokens{delay: time.Hour}, time.Hour, false)
		before := time.Now()
		if user, _, err := cache.AuthenticateToken(t.Context(), "anna", nil); user != nil || !errors.Is(err, context.DeadlineExceeded) || time.Since(before) != 30*time.Second {
			t.Errorf("got %v, %v after %v", user, err, time.Since(before))
		}
	})
}

func BenchmarkRemembered(b *testing.B) {
	cache := newCache(&tokens{}, time.Hour, false)
	token := strings.Repeat("x", 1000)
	b.ReportAllocs()
	for b.Loop() {
		_, _, _ = cache.AuthenticateToken(context.Background(), token, []string{"api"})
	}
}
