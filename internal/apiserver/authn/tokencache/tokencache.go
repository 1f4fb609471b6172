package tokencache

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"golang.org/x/sync/singleflight"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"

	"skiff/internal/apiserver/authn"
)

const (
	// MaxEntries bounds the tokens that are remembered. The least recently used is forgotten first.
	MaxEntries = 4096
	// lookupTimeout bounds a lookup, which several requests may wait for.
	lookupTimeout = 30 * time.Second
)

var errCrash = apierrors.NewInternalError(errors.New("authentication failed unexpectedly"))

// Options say what is remembered and for how long.
type Options struct {
	TTL      time.Duration // nothing is remembered if 0
	Failures bool          // remember that a token is not authenticated, too; errors are never remembered
	// MaxLookups bounds the tokens that are looked up at once; requests with further tokens wait. There is no bound if 0.
	MaxLookups int
	Clock      clock.PassiveClock
	Log        *slog.Logger
}

// Cache is a TokenAuthenticator in front of another one.
type Cache struct {
	options Options
	tokens  authn.TokenAuthenticator
	key     [sha256.Size]byte
	results *cache.LRUExpireCache
	lookups singleflight.Group
	slots   chan struct{} // nil without a bound
}

type result struct {
	user      *authn.User
	audiences []string
	err       error
}

// New returns a cache in front of tokens.
func New(tokens authn.TokenAuthenticator, o Options) *Cache {
	c := &Cache{options: o, tokens: tokens, results: cache.NewLRUExpireCacheWithClock(MaxEntries, o.Clock)}
	if o.MaxLookups > 0 {
		c.slots = make(chan struct{}, o.MaxLookups)
	}
	_, _ = rand.Read(c.key[:]) // never fails
	return c
}

// AuthenticateToken returns what was remembered, or else asks.
func (c *Cache) AuthenticateToken(ctx context.Context, token string, audiences []string) (*authn.User, []string, error) {
	key := c.hash(token, audiences)
	if r, ok := c.results.Get(key); ok {
		return r.(*result).values()
	}
	looked := c.lookups.DoChan(string(key[:]), func() (any, error) {
		if r, ok := c.results.Get(key); ok { // of a lookup that has just ended
			return r, nil
		}
		return c.lookUp(key, token, audiences), nil
	})
	select {
	case r := <-looked:
		return r.Val.(*result).values()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

func (r *result) values() (*authn.User, []string, error) { return r.user, r.audiences, r.err }

// lookUp asks and remembers. It has a context of its own, as the request that began it may end before others that wait for it.
func (c *Cache) lookUp(key [sha256.Size]byte, token string, audiences []string) (r *result) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	if c.slots != nil {
		select {
		case c.slots <- struct{}{}:
			defer func() { <-c.slots }()
		case <-ctx.Done():
			return &result{err: ctx.Err()}
		}
	}
	r = &result{}
	defer func() {
		if p := recover(); p != nil {
			c.options.Log.Error("failed to authenticate a token: panic", "panic", p, "stack", string(debug.Stack()))
			r = &result{err: errCrash}
		}
	}()
	r.user, r.audiences, r.err = c.tokens.AuthenticateToken(ctx, token, audiences)
	if c.options.TTL > 0 && r.err == nil && (r.user != nil || c.options.Failures) {
		c.results.Add(key, r, c.options.TTL)
	}
	return r
}

// hash returns a hash of the token and the audiences that nobody else can compute. Lengths keep apart what would be the same in a row.
func (c *Cache) hash(token string, audiences []string) (key [sha256.Size]byte) {
	h := hmac.New(sha256.New, c.key[:])
	write := func(s string) {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(s)))
		h.Write(length[:])
		h.Write([]byte(s))
	}
	write(token)
	for _, a := range audiences {
		write(a)
	}
	h.Sum(key[:0])
	return key
}
