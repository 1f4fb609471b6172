package config

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/clock"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authn/basicauth"
	"skiff/internal/apiserver/authn/bearer"
	"skiff/internal/apiserver/authn/bootstraptoken"
	"skiff/internal/apiserver/authn/clientcert"
	"skiff/internal/apiserver/authn/configfile"
	"skiff/internal/apiserver/authn/jws"
	"skiff/internal/apiserver/authn/oidc"
	"skiff/internal/apiserver/authn/requestheader"
	"skiff/internal/apiserver/authn/serviceaccount"
	"skiff/internal/apiserver/authn/tokenfile"
	"skiff/internal/apiserver/authn/webhook"
	"skiff/internal/apiserver/objects"
)

// Options are the flags about authentication, and what replaces files in tests and in one-process clusters.
type Options struct {
	AnonymousAuth            bool     // --anonymous-auth
	AnonymousAuthGiven       bool     // whether --anonymous-auth was given
	EnableBootstrapTokenAuth bool     // --enable-bootstrap-token-auth
	APIAudiences             []string // --api-audiences; the issuers if empty
	TokenAuthFile            string   // --token-auth-file
	BasicAuthFile            string   // --basic-auth-file

	ClientCAFile string         // --client-ca-file
	ClientCAs    clientcert.CAs // replaces ClientCAFile

	RequestHeader             requestheader.Headers // --requestheader-username-headers, -uid-headers, -group-headers, -extra-headers-prefix
	RequestHeaderAllowedNames []string              // --requestheader-allowed-names
	RequestHeaderClientCAFile string                // --requestheader-client-ca-file
	RequestHeaderClientCAs    clientcert.CAs        // replaces RequestHeaderClientCAFile

	ServiceAccountIssuers               []string          // --service-account-issuer; the first issues tokens, the tokens of all are accepted
	ServiceAccountKeyFiles              []string          // --service-account-key-file
	ServiceAccountSigningKeyFile        string            // --service-account-signing-key-file
	ServiceAccountSigningKey            crypto.PrivateKey // replaces ServiceAccountSigningKeyFile, and verifies tokens too
	ServiceAccountLookup                bool              // --service-account-lookup
	ServiceAccountJWKSURI               string            // --service-account-jwks-uri
	ServiceAccountMaxTokenExpiration    time.Duration     // --service-account-max-token-expiration
	ServiceAccountExtendTokenExpiration bool              // --service-account-extend-token-expiration
	ExternalAddress                     string            // host:port at which clients reach this server

	MoreTokens authn.Tokens // authenticators of further tokens of this server

	AuthenticationConfigFile string               // --authentication-config
	OIDC                     configfile.OIDCFlags // --oidc-*

	WebhookConfigFile string        // --authentication-token-webhook-config-file
	WebhookVersion    string        // --authentication-token-webhook-version
	WebhookCacheTTL   time.Duration // --authentication-token-webhook-cache-ttl
	WebhookRetry      wait.Backoff  // upstream's if its Steps are 0

	Stopping context.Context       // requests to other servers end with it; they never end if nil
	Dial     Dial                  // reaches pods and services; directly if nil
	Metrics  prometheus.Registerer // nothing is counted if nil
	Clock    clock.PassiveClock    // the real clock if nil
	Notes    authn.Notes           // warnings and annotations are discarded if nil
	Log      *slog.Logger          // logs are discarded if nil
}

// Dial connects to an address.
type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

// Default returns the default values of the flags.
func Default() Options {
	return Options{AnonymousAuth: true, ServiceAccountLookup: true, ServiceAccountExtendTokenExpiration: true,
		OIDC:           configfile.OIDCFlags{UsernameClaim: "sub", SigningAlgs: []string{"RS256"}},
		WebhookVersion: "v1beta1", WebhookCacheTTL: 2 * time.Minute}
}

// Authentication authenticates the requests of a server.
type Authentication struct {
	Audiences []string                  // of this API server
	Issuer    *serviceaccount.Issuer    // nil without a signing key
	Discovery *serviceaccount.Discovery // nil if the issuer's URL does not allow discovery
	ClientCAs []clientcert.CAs          // the CAs whose client certificates TLS requests
	Trust     Trust

	chain          authn.Chain
	bearer         *bearer.Authenticator // nil if no token authenticator is configured
	issuers        *oidc.File            // nil if neither a file nor flags name issuers
	headers        requestheader.Headers
	anonymous      bool
	anonymousPaths map[string]bool // the paths at which requests may be anonymous; nil for all
}

// Trust is what other servers of the cluster need to authenticate the same users as this one.
type Trust struct {
	Clients         clientcert.CAs // nil if there are none
	FrontProxies    clientcert.CAs // nil if there are none
	Headers         requestheader.Headers
	FrontProxyNames []string // the allowed common names of front proxies; empty allows any
}

// New returns the authentication that the options describe: front proxy, password, client certificate, bearer token, anonymous, in this order.
func New(o Options, store objects.Store) (*Authentication, error) {
	o.complete()
	a := &Authentication{Audiences: o.APIAudiences, headers: o.RequestHeader}
	if len(a.Audiences) == 0 {
		a.Audiences = o.ServiceAccountIssuers
	}
	var tokens authn.Tokens
	for _, add := range []func(*Options, objects.Store, *authn.Tokens) error{
		a.addRequestHeader, a.addBasicAuth, a.addClientCert, a.addTokenFile, a.addServiceAccounts, a.addBootstrapTokens,
	} {
		if err := add(&o, store, &tokens); err != nil {
			return nil, err
		}
	}
	tokens = append(tokens, o.MoreTokens...)
	// Those that ask other servers come last: no token of this server's is sent to them.
	if err := errors.Join(a.addIssuers(&o, &tokens), a.addWebhook(&o, &tokens)); err != nil {
		return nil, err
	}
	if len(tokens) > 0 {
		a.bearer = bearer.New(tokens, o.Notes)
		a.chain = append(a.chain, a.bearer)
	}
	return a, nil
}

// complete sets the defaults of options that are not set.
func (o *Options) complete() {
	if o.Stopping == nil {
		o.Stopping = context.Background()
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Notes == nil {
		o.Notes = authn.NoNotes{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.WebhookRetry.Steps == 0 {
		o.WebhookRetry = webhook.DefaultRetry()
	}
}

// Run does what authentication needs in the background, until Options.Stopping ends: it reaches the providers of tokens and follows the file that
// names them. It returns at once if there are none.
func (a *Authentication) Run() {
	if a.issuers != nil {
		a.issuers.Run()
	}
}

// Authenticate returns the user of the request, nil if it is unauthenticated. It removes the credential and the headers that only a front
// proxy may set from the request.
func (a *Authentication) Authenticate(r *http.Request) (*authn.User, error) {
	user, err := a.chain.Authenticate(r)
	if err != nil {
		return nil, err // an invalid credential must not become the anonymous user
	}
	if user = a.complete(user, r.URL.Path); user != nil {
		r.Header.Del("Authorization")
		requestheader.Standard.Clear(r.Header)
		a.headers.Clear(r.Header)
	}
	return user, nil
}

// AuthenticateToken returns the user of a request that carries only the token.
func (a *Authentication) AuthenticateToken(ctx context.Context, token string, audiences []string) (*authn.User, []string, error) {
	if len(audiences) == 0 {
		audiences = a.Audiences
	}
	if a.bearer != nil {
		user, good, err := a.bearer.AuthenticateToken(ctx, token, audiences)
		if err != nil {
			return nil, nil, err
		}
		if user != nil {
			return a.complete(user, ""), good, nil
		}
	}
	return a.complete(nil, ""), audiences, nil
}

// complete adds system:authenticated to the user that the chain found, or returns the anonymous user, if allowed at the path, for none.
func (a *Authentication) complete(user *authn.User, path string) *authn.User {
	switch {
	case user != nil:
		return authn.Authenticated(user)
	case a.anonymous && (a.anonymousPaths == nil || a.anonymousPaths[path]):
		return authn.AnonymousUser()
	}
	return nil
}

func (a *Authentication) addRequestHeader(o *Options, _ objects.Store, _ *authn.Tokens) error {
	if err := o.RequestHeader.Validate(o.RequestHeaderAllowedNames, o.Log); err != nil {
		return err
	}
	cas, err := authorities(o.RequestHeaderClientCAs, o.RequestHeaderClientCAFile, o)
	if cas == nil || err != nil {
		return err
	}
	if len(o.RequestHeaderAllowedNames) == 0 {
		others, err := authorities(o.ClientCAs, o.ClientCAFile, o)
		if err != nil {
			return err
		}
		if overlap(cas, others) {
			return errors.New("--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; " +
				"--requestheader-allowed-names must be specified to ensure regular client certificates cannot set authenticating proxy headers for arbitrary users")
		}
	}
	a.ClientCAs = append(a.ClientCAs, cas)
	a.Trust.FrontProxies, a.Trust.Headers, a.Trust.FrontProxyNames = cas, o.RequestHeader, o.RequestHeaderAllowedNames
	a.chain = append(a.chain, requestheader.New(o.RequestHeader, cas, o.RequestHeaderAllowedNames, o.Clock))
	return nil
}

func (a *Authentication) addBasicAuth(o *Options, _ objects.Store, _ *authn.Tokens) error {
	if o.BasicAuthFile == "" {
		return nil
	}
	file, err := basicauth.Read(o.BasicAuthFile, o.Log)
	if err != nil {
		return err
	}
	a.chain = append(a.chain, file)
	return nil
}

func (a *Authentication) addClientCert(o *Options, _ objects.Store, _ *authn.Tokens) error {
	cas, err := authorities(o.ClientCAs, o.ClientCAFile, o)
	if cas == nil || err != nil {
		return err
	}
	a.ClientCAs = append(a.ClientCAs, cas)
	a.Trust.Clients = cas
	a.chain = append(a.chain, clientcert.New(cas, o.Clock))
	return nil
}

func (a *Authentication) addTokenFile(o *Options, _ objects.Store, tokens *authn.Tokens) error {
	if o.TokenAuthFile == "" {
		return nil
	}
	file, err := tokenfile.Read(o.TokenAuthFile, o.Log)
	if err != nil {
		return err
	}
	*tokens = append(*tokens, authn.ForServer(a.Audiences, file.Authenticate))
	return nil
}

func (a *Authentication) addBootstrapTokens(o *Options, store objects.Store, tokens *authn.Tokens) error {
	if o.EnableBootstrapTokenAuth {
		*tokens = append(*tokens, authn.ForServer(a.Audiences, bootstraptoken.New(store, o.Clock, o.Log).Authenticate))
	}
	return nil
}

// addServiceAccounts adds nothing if there is neither an issuer nor a key, which is for tests: a cluster always has them.
func (a *Authentication) addServiceAccounts(o *Options, store objects.Store, tokens *authn.Tokens) error {
	if len(o.ServiceAccountIssuers) == 0 && len(o.ServiceAccountKeyFiles) == 0 && o.ServiceAccountSigningKeyFile == "" && o.ServiceAccountSigningKey == nil {
		return nil
	}
	err := errors.Join(checkIssuers(o.ServiceAccountIssuers), checkJWKSURI(o.ServiceAccountJWKSURI),
		serviceaccount.CheckMaxExpiration(o.ServiceAccountMaxTokenExpiration))
	if err != nil {
		return err
	}
	signer, keys, err := loadKeys(o)
	if err != nil {
		return err
	}
	*tokens = append(*tokens, serviceaccount.NewAuthenticator(serviceaccount.Config{Issuers: o.ServiceAccountIssuers, Audiences: a.Audiences, Keys: keys,
		Lookup: o.ServiceAccountLookup, Objects: store, Clock: o.Clock, Notes: o.Notes, Log: o.Log}))
	if signer != nil {
		a.Issuer = &serviceaccount.Issuer{Issuer: o.ServiceAccountIssuers[0], Audiences: a.Audiences, Signer: signer, MaxExpiration: o.ServiceAccountMaxTokenExpiration,
			ExtendExpiration: o.ServiceAccountExtendTokenExpiration, Objects: store, Clock: o.Clock, Notes: o.Notes}
	}
	if a.Discovery, err = serviceaccount.NewDiscovery(o.ServiceAccountIssuers[0], o.ServiceAccountJWKSURI, o.ExternalAddress, keys); err != nil {
		o.Log.Warn("service account issuer discovery is disabled", "error", err)
	}
	return nil
}

func loadKeys(o *Options) (*jws.Signer, *serviceaccount.Keys, error) {
	var public []crypto.PublicKey
	for _, file := range o.ServiceAccountKeyFiles {
		found, err := keyutil.PublicKeysFromFile(file)
		if err != nil {
			return nil, nil, err
		}
		for _, p := range found {
			public = append(public, p)
		}
	}
	private := o.ServiceAccountSigningKey
	if private == nil && o.ServiceAccountSigningKeyFile != "" {
		var err error
		if private, err = keyutil.PrivateKeyFromFile(o.ServiceAccountSigningKeyFile); err != nil {
			return nil, nil, fmt.Errorf("failed to parse service-account-issuer-key-file: %w", err)
		}
	}
	var signer *jws.Signer
	if private != nil {
		var err error
		if signer, err = jws.NewSigner(private); err != nil {
			return nil, nil, fmt.Errorf("failed to build token generator: %w", err)
		}
	}
	if key, ok := o.ServiceAccountSigningKey.(crypto.Signer); ok {
		public = append(public, key.Public())
	}
	if len(public) == 0 {
		return nil, nil, errors.New("`--service-account-key-file` must be set")
	}
	keys, err := serviceaccount.NewKeys(public...)
	if err != nil {
		return nil, nil, fmt.Errorf("failed to set up public service account keys: %w", err)
	}
	return signer, keys, nil
}

func checkIssuers(issuers []string) error {
	if len(issuers) == 0 {
		return errors.New("service-account-issuer is a required flag")
	}
	var errs []error
	seen := map[string]bool{}
	for _, issuer := range issuers {
		if issuer == "" {
			errs = append(errs, errors.New("service-account-issuer should not be an empty string"))
		} else if seen[issuer] {
			errs = append(errs, fmt.Errorf("service-account-issuer %q is already specified", issuer))
		} else if _, err := url.Parse(issuer); err != nil && strings.Contains(issuer, ":") {
			errs = append(errs, fmt.Errorf("service-account-issuer %q contained a ':' but was not a valid URL: %w", issuer, err))
		}
		seen[issuer] = true
	}
	return errors.Join(errs...)
}

func checkJWKSURI(uri string) error {
	if uri == "" {
		return nil
	}
	u, err := url.Parse(uri)
	if err != nil {
		return fmt.Errorf("service-account-jwks-uri must be a valid URL: %w", err)
	}
	if u.Scheme != "https" {
		return fmt.Errorf("service-account-jwks-uri requires https scheme, parsed as: %v", u)
	}
	return nil
}

// authorities returns the given CAs or those of the file, nil if there is neither.
func authorities(given clientcert.CAs, file string, o *Options) (clientcert.CAs, error) {
	if given != nil || file == "" {
		return given, nil
	}
	cas, err := clientcert.FromFile(file, o.Clock, o.Log)
	if err != nil {
		return nil, fmt.Errorf("unable to load client CA file: %w", err)
	}
	return cas, nil
}

func overlap(a, b clientcert.CAs) bool {
	if b == nil || a() == nil || b() == nil {
		return false
	}
	for _, x := range a().Certificates {
		for _, y := range b().Certificates {
			if x.Equal(y) {
				return true
			}
		}
	}
	return false
}
