package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/wait"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	"k8s.io/utils/clock"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/reviewclient"
)

const (
	// cacheSize bounds how many responses are cached.
	cacheSize = 8192
	// maxCachedRequest bounds what users choose of a request whose response is cached.
	maxCachedRequest = 10000
	// maxCachedText bounds the reason in a response that is cached.
	maxCachedText = 2048
)

// Options describe one webhook.
type Options struct {
	Name    string // of the authorizer, in reasons and metrics
	Client  *reviewclient.Client
	Version string // of the SubjectAccessReview that is sent: v1 or v1beta1
	// AuthorizedTTL and UnauthorizedTTL are how long responses that allow, and others, are cached; not at all if 0.
	AuthorizedTTL, UnauthorizedTTL time.Duration
	// DenyOnError says that a webhook that fails denies; otherwise it has no opinion then.
	DenyOnError bool
	// Conditions must all be true of the requests that the webhook is called for; nil for all requests.
	Conditions *authorizationcel.CELMatcher
	Backoff    wait.Backoff
	Metrics    *Metrics
	Clock      clock.Clock
	Log        *slog.Logger
}

// Authorizer authorizes requests by calling a webhook.
type Authorizer struct {
	Options
	kind          schema.GroupVersionKind
	onError       authz.Decision
	responseCache *cache.LRUExpireCache // nil if nothing is cached
}

var (
	_ authz.Authorizer      = (*Authorizer)(nil)
	_ authz.RulesAuthorizer = (*Authorizer)(nil)
)

// New returns an authorizer that calls a webhook.
func New(o Options) (*Authorizer, error) {
	if o.Version != "v1" && o.Version != "v1beta1" {
		return nil, fmt.Errorf("unsupported webhook authorizer version %q, supported versions are %q, %q", o.Version, "v1", "v1beta1")
	}
	if c := o.Conditions; c != nil {
		c.AuthorizerType, c.AuthorizerName, c.Metrics = "Webhook", o.Name, o.Metrics
	}
	a := &Authorizer{Options: o, kind: schema.GroupVersionKind{Group: authorizationv1.GroupName, Version: o.Version, Kind: "SubjectAccessReview"}}
	if o.DenyOnError {
		a.onError = authz.Deny
	}
	if o.AuthorizedTTL > 0 || o.UnauthorizedTTL > 0 {
		a.responseCache = cache.NewLRUExpireCacheWithClock(cacheSize, o.Clock)
	}
	return a, nil
}

// Name returns the name of the authorizer in reasons.
func (a *Authorizer) Name() string { return a.Options.Name }

// Close closes the connections to the webhook that are idle.
func (a *Authorizer) Close() { a.Client.Close() }

// RulesFor returns no rules: a webhook cannot list them.
func (a *Authorizer) RulesFor(context.Context, *authn.User, string) (authz.Rules, error) {
	return authz.Rules{Incomplete: true}, errors.New("webhook authorizer does not support user rule resolution")
}

// Authorize calls the webhook, unless a condition is false or the response is cached. The error says why the call failed, or what is wrong with its response.
func (a *Authorizer) Authorize(ctx context.Context, at *authz.Attributes) (authz.Decision, string, error) {
	spec := specOf(at)
	if a.Conditions != nil {
		matches, err := a.Conditions.Eval(ctx, &authorizationv1.SubjectAccessReview{Spec: spec})
		if err != nil {
			return a.onError, "", err
		}
		if !matches {
			return authz.NoOpinion, "", nil
		}
	}
	encoded, err := json.Marshal(&spec)
	if err != nil {
		return a.onError, "", err
	}
	var key [sha256.Size]byte
	if a.responseCache != nil {
		key = sha256.Sum256(encoded)
		if known, ok := a.responseCache.Get(key); ok {
			return decisionOf(known.(*authorizationv1.SubjectAccessReviewStatus))
		}
	}
	status, err := a.call(ctx, &spec)
	if err != nil {
		return a.onError, "", err
	}
	a.remember(key, at, status)
	return decisionOf(status)
}

// decisionOf returns the decision that a response means.
func decisionOf(s *authorizationv1.SubjectAccessReviewStatus) (authz.Decision, string, error) {
	switch {
	case s.Denied && s.Allowed:
		return authz.Deny, s.Reason, errors.New("webhook subject access review returned both allow and deny response")
	case s.Denied:
		return authz.Deny, s.Reason, nil
	case s.Allowed:
		return authz.Allow, s.Reason, nil
	}
	return authz.NoOpinion, s.Reason, nil
}

// call sends a review to the webhook until it succeeds, within the steps of the back-off.
func (a *Authorizer) call(ctx context.Context, spec *authorizationv1.SubjectAccessReviewSpec) (*authorizationv1.SubjectAccessReviewStatus, error) {
	body, err := encode(spec, a.Version)
	if err != nil {
		return nil, err
	}
	var status *authorizationv1.SubjectAccessReviewStatus
	result := ""
	err = reviewclient.Retry(ctx, a.Backoff, func() error {
		began := a.Clock.Now()
		response, code, err := a.Client.Post(ctx, body)
		if err == nil {
			status, err = decode(response, a.kind)
		}
		switch {
		case err == nil:
			result = "success"
		case ctx.Err() != nil:
			result = "canceled"
		case reviewclient.IsTimeout(err, code):
			result = "timeout"
		default:
			result = "error"
		}
		a.Metrics.called(a.Options.Name, result, a.Clock.Since(began))
		return err
	})
	if err != nil {
		a.Log.Error("failed to make webhook authorizer request", "webhook", a.Options.Name, "err", err)
		if a.onError == authz.NoOpinion && ctx.Err() == nil {
			a.Metrics.failedOpen(a.Options.Name, result)
		}
		return nil, err
	}
	return status, nil
}

// remember caches a response, unless it or the request is too large.
func (a *Authorizer) remember(key [sha256.Size]byte, at *authz.Attributes, s *authorizationv1.SubjectAccessReviewStatus) {
	ttl := a.UnauthorizedTTL
	if s.Allowed {
		ttl = a.AuthorizedTTL
	}
	chosen := len(at.Namespace) + len(at.Verb) + len(at.Group) + len(at.Version) + len(at.Plural) + len(at.Subresource) + len(at.Name) + len(at.Path)
	if a.responseCache == nil || ttl <= 0 || chosen >= maxCachedRequest || len(s.Reason) > maxCachedText {
		return
	}
	a.responseCache.Add(key, &authorizationv1.SubjectAccessReviewStatus{Allowed: s.Allowed, Denied: s.Denied, Reason: s.Reason}, ttl)
}
