package encryption

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// Transformer turns values into what is stored, and back.
type Transformer interface {
	// ToStorage returns what is to be stored under a key of the store for a value. The value is not changed.
	ToStorage(ctx context.Context, key string, value []byte) ([]byte, error)
	// FromStorage returns the value of what is stored under a key. stale reports that ToStorage would encrypt it by another key or provider. It waits for a KMS
	// plugin only if the plugin has to decrypt a key that is not known yet: not at all if ctx is done.
	FromStorage(ctx context.Context, key string, stored []byte) (value []byte, stale bool, err error)
}

// encryptedPrefix begins everything that is stored encrypted. No other value does: objects begin with "k8s\x00" or "{".
var encryptedPrefix = []byte("k8s:enc:")

// ErrEncrypted is the error of a stored value that is encrypted and for which no provider is configured.
var ErrEncrypted = errors.New("identity transformer tried to read encrypted data")

// IsEncrypted reports whether a stored value is encrypted.
func IsEncrypted(stored []byte) bool { return bytes.HasPrefix(stored, encryptedPrefix) }

// provider encrypts values, and decrypts what it has encrypted. The key of the store is authenticated where the algorithm can: a value that somebody has copied
// to another key cannot be decrypted.
type provider interface {
	// seal appends the encrypted value to b.
	seal(ctx context.Context, b []byte, key string, value []byte) ([]byte, error)
	// open returns the value of what seal has appended. stale reports that seal would use another key now.
	open(ctx context.Context, key string, sealed []byte) (value []byte, stale bool, err error)
	// overhead returns about how many bytes seal appends beside the value.
	overhead() int
}

// prefixed is a provider, and the prefix of what it stores.
type prefixed struct {
	prefix string
	provider
	count *transformations // nil in a list that is not bound to a resource yet
}

// list is a provider that encrypts with its first provider, and decrypts with those whose prefix matches.
type list struct {
	providers []prefixed
	none      error // for values that match no prefix
	unmatched *transformations
}

func (l *list) overhead() int { return len(l.providers[0].prefix) + l.providers[0].overhead() }

func (l *list) seal(ctx context.Context, b []byte, key string, value []byte) ([]byte, error) {
	began := time.Now()
	first := &l.providers[0]
	sealed, err := first.seal(ctx, append(b, first.prefix...), key, value)
	first.count.toStorage(began, err)
	return sealed, err
}

// open tries every provider whose prefix matches: several have the same prefix while keys are rotated.
func (l *list) open(ctx context.Context, key string, sealed []byte) ([]byte, bool, error) {
	began := time.Now()
	var errs []error
	for i := range l.providers {
		p := &l.providers[i]
		if len(sealed) < len(p.prefix) || string(sealed[:len(p.prefix)]) != p.prefix {
			continue
		}
		value, stale, err := p.open(ctx, key, sealed[len(p.prefix):])
		if err != nil && p.prefix == "" {
			continue // identity comes before other providers if values are to be decrypted for good
		}
		p.count.fromStorage(began, err)
		if err == nil {
			return value, stale || i > 0, nil
		}
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, false, utilerrors.Reduce(utilerrors.NewAggregate(errs))
	}
	l.unmatched.fromStorage(began, l.none)
	return nil, false, l.none
}

// bind returns the list with metrics of a resource.
func (l *list) bind(m *metrics, resource string) *list {
	bound := &list{none: l.none, unmatched: m.transformations(resource, "unknown", "unknown")}
	for _, p := range l.providers {
		if inner, ok := p.provider.(*list); ok {
			p.provider = inner.bind(m, resource)
		}
		read := p.prefix
		if read == "" {
			read = "identity"
		}
		p.count = m.transformations(resource, p.prefix, read)
		bound.providers = append(bound.providers, p)
	}
	return bound
}

// identity stores values as they are.
type identity struct{}

func (identity) overhead() int { return 0 }

func (identity) seal(_ context.Context, b []byte, _ string, value []byte) ([]byte, error) {
	return append(b, value...), nil
}

func (identity) open(_ context.Context, _ string, stored []byte) ([]byte, bool, error) {
	if IsEncrypted(stored) {
		return nil, false, ErrEncrypted
	}
	return stored, false, nil
}

// Temporary reports whether an error of a Transformer may go away by itself: a KMS plugin could not be asked. Other errors stay until the configuration has the
// key that is missing.
func Temporary(err error) bool { return errors.As(err, new(unavailable)) }

// unavailable is the error of a KMS plugin that could not be asked.
type unavailable struct{ error }

func (u unavailable) Unwrap() error { return u.error }

var errShort = fmt.Errorf("the stored data was shorter than the required size")
