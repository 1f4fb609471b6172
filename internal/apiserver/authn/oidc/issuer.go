package oidc

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	gooidc "github.com/coreos/go-oidc"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/apis/apiserver"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/utils/clock"

	"skiff/internal/apiserver/authn"
)

// Algorithms returns the signing algorithms that can be accepted. All of them are asymmetric.
func Algorithms() []string {
	return []string{gooidc.ES256, gooidc.ES384, gooidc.ES512, gooidc.PS256, gooidc.PS384, gooidc.PS512, gooidc.RS256, gooidc.RS384, gooidc.RS512}
}

func isAlgorithm(name string) bool { return slices.Contains(Algorithms(), name) }

// issuer authenticates the tokens of one issuer.
type issuer struct {
	config         apiserver.JWTAuthenticator
	programs       authenticationcel.CELMapper
	requiredClaims map[string]string
	client         *http.Client
	verifierConfig *gooidc.Config
	distributed    *distributedClaims // nil if no claim can be
	stopping       context.Context
	retry          time.Duration
	clock          clock.PassiveClock
	metrics        *Metrics
	log            *slog.Logger

	verifier atomic.Pointer[verifier] // nil until the provider has answered
	failure  atomic.Pointer[error]    // why there is no verifier
}

// verifier verifies tokens of one issuer that are for one of the audiences.
type verifier struct {
	*gooidc.IDTokenVerifier
	audiences sets.Set[string]
}

func newIssuer(ctx context.Context, config apiserver.JWTAuthenticator, programs authenticationcel.CELMapper, o *Options) (*issuer, error) {
	client, err := newClient(&config.Issuer, o.Dial)
	if err != nil {
		return nil, err
	}
	i := &issuer{config: config, programs: programs, requiredClaims: map[string]string{}, client: client, stopping: gooidc.ClientContext(ctx, client),
		retry: o.Retry, clock: o.Clock, metrics: o.Metrics, log: o.Log,
		// The audiences are verified here, as go-oidc knows only one.
		verifierConfig: &gooidc.Config{SkipClientIDCheck: true, SupportedSigningAlgs: o.Algorithms, Now: o.Clock.Now}}
	if audiences := config.Issuer.Audiences; len(audiences) == 1 {
		i.verifierConfig.SkipClientIDCheck, i.verifierConfig.ClientID = false, audiences[0]
	}
	for _, rule := range config.ClaimValidationRules {
		if rule.Claim != "" {
			i.requiredClaims[rule.Claim] = rule.RequiredValue
		}
	}
	if claim := config.ClaimMappings.Groups.Claim; claim != "" {
		i.distributed = &distributedClaims{issuer: i, claim: claim, issuers: map[string]*claimIssuer{}}
	}
	i.failed(fmt.Errorf("oidc: authenticator for issuer %q is not initialized", config.Issuer.URL))
	return i, nil
}

func (i *issuer) failed(err error) { i.failure.Store(&err) }

func (i *issuer) healthy() error {
	if i.verifier.Load() != nil {
		return nil
	}
	return fmt.Errorf("oidc: authenticator for issuer %q is not healthy: %w", i.config.Issuer.URL, *i.failure.Load())
}

// run asks the provider for its configuration until it has answered.
func (i *issuer) run() {
	for {
		v, err := i.discover(i.config.Issuer.URL, true)
		if err == nil {
			i.verifier.Store(v)
			return
		}
		if i.stopping.Err() != nil {
			return
		}
		i.failed(err)
		i.log.Error("failed to get the configuration of an OIDC provider, trying again", "issuer", i.config.Issuer.URL, "err", err)
		select {
		case <-i.stopping.Done():
			return
		case <-time.After(i.retry):
		}
	}
}

// discover returns a verifier of a provider's tokens, with the keys that the provider's configuration names.
func (i *issuer) discover(url string, counted bool) (*verifier, error) {
	provider, err := gooidc.NewProvider(i.stopping, url)
	if err != nil {
		return nil, err
	}
	var document struct {
		KeysURL string `json:"jwks_uri"`
	}
	if err := provider.Claims(&document); err != nil {
		return nil, err
	}
	if document.KeysURL == "" {
		return nil, errors.New("provider did not return JWKS URL")
	}
	client := *i.client
	keys := newKeyTransport(client.Transport)
	if counted {
		keys.fetched = func(keySet []byte, ok bool) { i.metrics.fetched(i.stopping, url, keySet, ok) }
	}
	client.Transport = keys
	keySet := gooidc.NewRemoteKeySet(gooidc.ClientContext(i.stopping, &client), document.KeysURL)
	return &verifier{gooidc.NewVerifier(url, keySet, i.verifierConfig), sets.New(i.config.Issuer.Audiences...)}, nil
}

func (v *verifier) verify(ctx context.Context, token string) (claims, error) {
	verified, err := v.Verify(ctx, token)
	if err != nil {
		return nil, err
	}
	if !v.audiences.HasAny(verified.Audience...) {
		return nil, fmt.Errorf("oidc: expected audience in %q got %q", sets.List(v.audiences), verified.Audience)
	}
	var c claims
	if err := verified.Claims(&c); err != nil {
		return nil, fmt.Errorf("oidc: parse claims: %w", err)
	}
	return c, nil
}

func (i *issuer) authenticate(ctx context.Context, token string) (user *authn.User, err error) {
	start := i.clock.Now()
	defer func() { i.metrics.authenticated(i.config.Issuer.URL, err == nil, i.clock.Since(start)) }()
	v := i.verifier.Load()
	if v == nil {
		return nil, errors.New("oidc: authenticator not initialized")
	}
	c, err := v.verify(ctx, token)
	if err != nil {
		return nil, fmt.Errorf("oidc: verify token: %w", err)
	}
	if i.distributed != nil {
		if err := i.distributed.expand(ctx, c); err != nil {
			return nil, fmt.Errorf("oidc: could not expand distributed claims: %w", err)
		}
	}
	return i.user(ctx, c)
}

// unverifiedIssuer returns whom the token names as its issuer. Nobody has verified it.
func unverifiedIssuer(token string) (string, error) {
	if strings.HasPrefix(strings.TrimSpace(token), "{") {
		return "", errors.New("token is not compact JWT")
	}
	if strings.Count(token, ".") != 2 {
		return "", errors.New("malformed token")
	}
	_, rest, _ := strings.Cut(token, ".")
	encoded, _, _ := strings.Cut(rest, ".")
	payload, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return "", fmt.Errorf("error decoding token: %w", err)
	}
	var named struct {
		Issuer string `json:"iss"`
	}
	if err := json.Unmarshal(payload, &named); err != nil {
		return "", fmt.Errorf("while unmarshaling token: %w", err)
	}
	if named.Issuer == "accounts.google.com" { // the older form of the same
		return "https://accounts.google.com", nil
	}
	return named.Issuer, nil
}
