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
	// maxVerified is how many tokens with a verified signature are cached, and verifiedTTL for how long; each takes about a kilobyte.
	maxVerified = 2048
	verifiedTTL = 10 * time.Second
)

var errInvalidated = errors.New("service account token has been invalidated")

// Config configures an Authenticator.
type Config struct {
	Issuers   []string // the issuers whose tokens are accepted, besides legacy tokens
	Audiences []string // of this API server
	Keys      *Keys
	Lookup    bool // whether the Secret of a legacy token must still exist; bound objects of other tokens are always looked up
	Objects   objects.Store
	Clock     clock.PassiveClock
	Notes     authn.Notes
	Log       *slog.Logger
}

// Authenticator authenticates tokens of service accounts.
type Authenticator struct {
	Config
	verified *cache.LRUExpireCache // *signed by SHA-256 of the token
}

// NewAuthenticator returns an authenticator.
func NewAuthenticator(c Config) *Authenticator {
	return &Authenticator{Config: c, verified: cache.NewLRUExpireCacheWithClock(maxVerified, c.Clock)}
}

// signed is a token whose signature was verified.
type signed struct {
	claims *claims
	user   *authn.User
}

// AuthenticateToken returns the token's user.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string, audiences []string) (*authn.User, []string, error) {
	s, err := a.verify(token)
	if s == nil || err != nil {
		return nil, nil, err
	}
	tokenAudiences := []string(s.claims.Audience)
	if len(tokenAudiences) == 0 {
		a.Notes.Annotate(ctx, "authentication.k8s.io/legacy-token", s.claims.Subject)
		tokenAudiences = a.Audiences
	}
	if len(audiences) == 0 {
		audiences = a.Audiences
	}
	common := authn.Common(audiences, tokenAudiences)
	if len(common) == 0 && len(a.Audiences) > 0 {
		return nil, nil, fmt.Errorf("token audiences %q is invalid for the target audiences %q", tokenAudiences, audiences)
	}
	if s.claims.legacy() {
		err = a.checkLegacy(ctx, token, s.claims)
	} else {
		err = a.check(ctx, s.claims)
	}
	if err != nil {
		return nil, nil, err
	}
	return s.user, common, nil
}

// verify returns a token whose signature is valid, and nil if its form or issuer is not one that this authenticator accepts.
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
	if err != nil || !a.acceptsIssuer(claims.Issuer) {
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
		a.verified.Add(key, s, verifiedTTL)
		return s, nil
	}
	return nil, utilerrors.NewAggregate(errs)
}

func (a *Authenticator) acceptsIssuer(issuer string) bool {
	return issuer == LegacyIssuer || slices.Contains(a.Issuers, issuer)
}

// check returns an error unless the token has not expired and the objects it is bound to still exist.
func (a *Authenticator) check(ctx context.Context, c *claims) error {
	now := a.Clock.Now()
	if err := c.atTime(now); err != nil {
		return err
	}
	k := c.Kubernetes
	if k == nil || k.Namespace == "" || k.ServiceAccount.Name == "" {
		return errors.New("service account token names no service account")
	}
	deleted := func(o catalog.Object) bool {
		return o.GetDeletionTimestamp() != nil && o.GetDeletionTimestamp().Time.Before(now.Add(-leeway))
	}
	account, err := a.find(ctx, "serviceaccounts", k.Namespace, k.ServiceAccount.Name)
	if err != nil {
		return err
	}
	if string(account.GetUID()) != k.ServiceAccount.UID {
		return fmt.Errorf("service account UID (%s) does not match claim (%s)", account.GetUID(), k.ServiceAccount.UID)
	}
	if deleted(account) {
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
		if deleted(obj) {
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

// nodeAlone returns the Node a token is bound to. In a token bound to a Pod, the node is only information.
func (b *bound) nodeAlone() *ref {
	if b.Pod != nil {
		return nil
	}
	return b.Node
}

// find returns an object from the cache, or from the store if the cache does not have it: it may be new.
func (a *Authenticator) find(ctx context.Context, resource, namespace, name string) (catalog.Object, error) {
	if obj := a.Objects.Get(corev1.Resource(resource), namespace, name); obj != nil {
		return obj, nil
	}
	return a.Objects.Fresh(ctx, corev1.Resource(resource), namespace, name)
}
