package oidc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/utils/clock"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authn/tokencache"
)

const (
	// retryInterval is how long to wait after a provider has not answered before it is asked again, unless Options say otherwise.
	retryInterval = 10 * time.Second
	// cacheTTL is how long a token that was verified is not verified again.
	cacheTTL = 10 * time.Second
)

// Options are what all issuers have in common.
type Options struct {
	// Algorithms are the signing algorithms that are accepted: RS256 if there are none.
	Algorithms []string
	// DisallowedIssuers are the issuers of service account tokens.
	DisallowedIssuers []string
	// Dial reaches pods and services, for issuers with the egress type cluster.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Retry is how long to wait after a provider has not answered before it is asked again: 10 s if 0.
	Retry time.Duration
	// ReloadTimeout is how long the providers of a changed file may take to answer, and how long until it is tried again: a minute if 0.
	ReloadTimeout time.Duration

	Clock   clock.PassiveClock
	Metrics *Metrics // nothing is counted if nil
	Log     *slog.Logger
}

// Issuers authenticates the tokens of the issuers of one configuration.
type Issuers struct {
	members []*issuer
	cache   *tokencache.Cache
}

// New returns an authenticator of tokens of the issuers. None of a provider's tokens is authenticated until Run has reached it. Requests to
// providers end with ctx.
func New(ctx context.Context, jwt []apiserver.JWTAuthenticator, o Options) (*Issuers, error) {
	if len(o.Algorithms) == 0 {
		o.Algorithms = []string{"RS256"}
	}
	o.Retry = cmp.Or(o.Retry, retryInterval)
	for _, a := range o.Algorithms {
		if !isAlgorithm(a) {
			return nil, fmt.Errorf("oidc: unsupported signing alg: %q", a)
		}
	}
	s := &Issuers{}
	if len(jwt) == 0 {
		return s, nil
	}
	compiler := authenticationcel.NewDefaultCompiler()
	for _, config := range jwt {
		programs, errs := validation.CompileAndValidateJWTAuthenticator(compiler, config, o.DisallowedIssuers)
		if err := errs.ToAggregate(); err != nil {
			return nil, err
		}
		member, err := newIssuer(ctx, config, programs, &o)
		if err != nil {
			return nil, err
		}
		s.members = append(s.members, member)
	}
	s.cache = tokencache.New(authn.ForServer(nil, s.verify), tokencache.Options{TTL: cacheTTL, Clock: o.Clock, Log: o.Log})
	return s, nil
}

// Run asks each provider for its configuration, again and again until it has answered, and returns when all have or the context of New ends.
func (s *Issuers) Run() {
	var together sync.WaitGroup
	for _, m := range s.members {
		together.Go(m.run)
	}
	together.Wait()
}

// Healthy returns why providers cannot be used yet, or nil.
func (s *Issuers) Healthy() error {
	var errs []error
	for _, m := range s.members {
		errs = append(errs, m.healthy())
	}
	return errors.Join(errs...)
}

// Authenticate returns the user of a token, nil if none of the issuers is the token's.
func (s *Issuers) Authenticate(ctx context.Context, token string) (*authn.User, error) {
	if !s.issued(token) {
		return nil, nil // others' tokens must not drive the providers' out of the cache
	}
	user, _, err := s.cache.AuthenticateToken(ctx, token, nil)
	return user, err
}

func (s *Issuers) issued(token string) bool {
	name, err := unverifiedIssuer(token)
	for _, m := range s.members {
		if err == nil && name == m.config.Issuer.URL {
			return true
		}
	}
	return false
}

func (s *Issuers) verify(ctx context.Context, token string) (*authn.User, error) {
	name, err := unverifiedIssuer(token)
	if err != nil {
		return nil, nil
	}
	for _, m := range s.members {
		if name == m.config.Issuer.URL {
			return m.authenticate(ctx, token)
		}
	}
	return nil, nil
}
