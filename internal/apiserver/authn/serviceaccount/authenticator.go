package serviceaccount

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/clock"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authn/jws"
	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
)

const (
	// remembered is how many signatures are known to be good without verifying them again, and rememberedFor how long; each takes about
	// a kilobyte.
	remembered    = 2048
	rememberedFor = 10 * time.Second
)

var errInvalidated = errors.New("service account token has been invalidated")

// Config is what an Authenticator works with.
type Config struct {
	Issuers   []string // whose tokens are recognized, besides legacy ones
	Audiences []string // the server's own
	Keys      *Keys
	Lookup    bool // whether legacy tokens must lie in a Secret still; for all others it is so
	Objects   objects.Store
	Clock     clock.PassiveClock
	Notes     authn.Notes
	Log       *slog.Logger
}

// Authenticator recognizes tokens of service accounts.
type Authenticator struct {
	Config
	verified *cache.LRUExpireCache
}

// NewAuthenticator returns an authenticator.
func NewAuthenticator(c Config) *Authenticator {
	return &Authenticator{Config: c, verified: cache.NewLRUExpireCacheWithClock(remembered, c.Clock)}
}

// signed is a token whose signature is good.
type signed struct {
	claims *claims
	user   *authn.User
}

// AuthenticateToken returns whose token it is.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string, audiences []string) (*authn.User, []string, error) {
	s, err := a.verify(token)
	if s == nil || err != nil {
		return nil, nil, err
	}
	meant := []string(s.claims.Audience)
	if len(meant) == 0 {
		a.Notes.Annotate(ctx, "authentication.k8s.io/legacy-token", s.claims.Subject)
		meant = a.Audiences
	}
	if len(audiences) == 0 {
		audiences = a.Audiences
	}
	good := authn.Common(audiences, meant)
	if len(good) == 0 && len(a.Audiences) > 0 {
		return nil, nil, fmt.Errorf("token audiences %q is invalid for the target audiences %q", meant, audiences)
	}
	if s.claims.legacy() {
		err = a.checkLegacy(ctx, token, s.claims)
	} else {
		err = a.check(ctx, s.claims)
	}
	if err != nil {
		return nil, nil, err
	}
	return s.user, good, nil
}

// verify returns what a token says if its signature is good, and nil if it is not one of ours.
func (a *Authenticator) verify(token string) (*signed, error) {
	if len(token) > jws.MaxSize {
		return nil, nil
	}
	key := sha256.Sum256([]byte(token))
	if known, ok := a.verified.Get(key); ok {
		return known.(*signed), nil
	}
	text, err := jws.Parse(token)
	if err != nil {
		return nil, nil
	}
	claims, err := parseClaims(text.Payload)
	if err != nil || !a.issued(claims.Issuer) {
		return nil, nil
	}
	keys := a.Keys.named(text.KeyID)
	if len(keys) == 0 {
		return nil, errors.New("invalid signature, no keys found")
	}
	var errs []error
	for _, k := range keys {
		if err := text.Verify(k); err != nil {
			errs = append(errs, err)
			continue
		}
		s := &signed{claims: claims, user: claims.user()}
		a.verified.Add(key, s, rememberedFor)
		return s, nil
	}
	return nil, utilerrors.NewAggregate(errs)
}

func (a *Authenticator) issued(issuer string) bool {
	return issuer == LegacyIssuer || slices.Contains(a.Issuers, issuer)
}

// check says whether what the token is bound to is still there.
func (a *Authenticator) check(ctx context.Context, c *claims) error {
	now := a.Clock.Now()
	if err := c.atTime(now); err != nil {
		return err
	}
	k := c.Kubernetes
	if k == nil || k.Namespace == "" || k.ServiceAccount.Name == "" {
		return errors.New("service account token names no service account")
	}
	gone := func(o catalog.Object) bool {
		return o.GetDeletionTimestamp() != nil && o.GetDeletionTimestamp().Time.Before(now.Add(-leeway))
	}
	account, err := a.find(ctx, "serviceaccounts", k.Namespace, k.ServiceAccount.Name)
	if err != nil {
		return err
	}
	if string(account.GetUID()) != k.ServiceAccount.UID {
		return fmt.Errorf("service account UID (%s) does not match claim (%s)", account.GetUID(), k.ServiceAccount.UID)
	}
	if gone(account) {
		return fmt.Errorf("service account %s/%s has been deleted", k.Namespace, k.ServiceAccount.Name)
	}
	for _, b := range []struct {
		ref                       *ref
		kind, resource, namespace string
	}{
		{k.Secret, "secret", "secrets", k.Namespace},
		{k.Pod, "pod", "pods", k.Namespace},
		{k.nodeAlone(), "node", "nodes", ""},
	} {
		if b.ref == nil {
			continue
		}
		obj, err := a.find(ctx, b.resource, b.namespace, b.ref.Name)
		if err != nil {
			return errInvalidated
		}
		if string(obj.GetUID()) != b.ref.UID {
			return fmt.Errorf("%s UID (%s) does not match service account %s ref claim (%s)", b.kind, obj.GetUID(), b.kind, b.ref.UID)
		}
		if gone(obj) {
			return errInvalidated
		}
	}
	if k.ValidatingWebhook != nil || k.MutatingWebhook != nil {
		return fmt.Errorf("feature gate %q is disabled, but token is webhook bound", webhookTokens)
	}
	if w := k.WarnAfter; w != nil && *w != 0 && now.After(w.time()) {
		a.Notes.Annotate(ctx, "authentication.k8s.io/stale-token",
			fmt.Sprintf("subject: %s, seconds after warning threshold: %d", c.Subject, now.Unix()-w.time().Unix()))
	}
	return nil
}

// nodeAlone is the Node a token is bound to. With a Pod, the node is only told.
func (b *bound) nodeAlone() *ref {
	if b.Pod != nil {
		return nil
	}
	return b.Node
}

// find asks the cache, and the store when the cache has not heard of the object: it may be new.
func (a *Authenticator) find(ctx context.Context, resource, namespace, name string) (catalog.Object, error) {
	if obj := a.Objects.Get(corev1.Resource(resource), namespace, name); obj != nil {
		return obj, nil
	}
	return a.Objects.Fresh(ctx, corev1.Resource(resource), namespace, name)
}
