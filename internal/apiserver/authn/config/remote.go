package config

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authn/configfile"
	"skiff/internal/apiserver/authn/oidc"
	"skiff/internal/apiserver/authn/tokencache"
	"skiff/internal/apiserver/authn/webhook"
)

// maxReviews bounds the tokens that a webhook is asked about at once.
const maxReviews = 256

// addIssuers adds the issuers of tokens that --authentication-config or --oidc-* name, and sets which requests may be anonymous.
func (a *Authentication) addIssuers(o *Options, tokens *authn.Tokens) error {
	a.anonymous = o.AnonymousAuth
	config, data, err := o.authenticationConfiguration()
	if config == nil || err != nil {
		return err
	}
	if config.Anonymous != nil && o.AnonymousAuthGiven {
		return field.Forbidden(field.NewPath("anonymous"), "--anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file")
	}
	if err := configfile.Validate(config, o.ServiceAccountIssuers).ToAggregate(); err != nil {
		return fmt.Errorf("invalid authentication configuration: %w", err)
	}
	if config.Anonymous != nil {
		a.allowAnonymous(config.Anonymous)
	}
	algorithms := o.OIDC.SigningAlgs
	if o.AuthenticationConfigFile != "" {
		algorithms = oidc.Algorithms()
	}
	options := oidc.Options{Algorithms: algorithms, DisallowedIssuers: o.ServiceAccountIssuers, Dial: o.Dial, Clock: o.Clock, Log: o.Log}
	if o.Metrics != nil {
		options.Metrics = oidc.NewMetrics(o.Metrics)
	}
	if a.issuers, err = oidc.NewFile(o.Stopping, o.AuthenticationConfigFile, data, config, options); err != nil {
		return err
	}
	*tokens = append(*tokens, authn.ForServer(a.Audiences, a.issuers.Authenticate))
	return nil
}

// authenticationConfiguration returns the configuration of the file, with its content, or that of the flags, or nil without either.
func (o *Options) authenticationConfiguration() (*apiserver.AuthenticationConfiguration, []byte, error) {
	if o.AuthenticationConfigFile == "" {
		if o.OIDC.Given && (o.OIDC.IssuerURL == "" || o.OIDC.ClientID == "") {
			return nil, nil, errors.New("oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set")
		}
		jwt, err := o.OIDC.JWT()
		if jwt == nil || err != nil {
			return nil, nil, err
		}
		return &apiserver.AuthenticationConfiguration{JWT: jwt}, nil, nil
	}
	if o.OIDC.Given {
		return nil, nil, errors.New("authentication-config file and oidc-* flags are mutually exclusive")
	}
	data, err := configfile.Read(o.AuthenticationConfigFile)
	var config *apiserver.AuthenticationConfiguration
	if err == nil {
		config, err = configfile.Parse(data)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("failed to load authentication configuration from file %q: %w", o.AuthenticationConfigFile, err)
	}
	return config, data, nil
}

func (a *Authentication) allowAnonymous(c *apiserver.AnonymousAuthConfig) {
	a.anonymous = c.Enabled
	for _, condition := range c.Conditions {
		if a.anonymousPaths == nil {
			a.anonymousPaths = map[string]bool{}
		}
		a.anonymousPaths[condition.Path] = true
	}
}

// addWebhook adds the server that is asked about tokens which nobody else knows.
func (a *Authentication) addWebhook(o *Options, tokens *authn.Tokens) error {
	if o.WebhookConfigFile == "" {
		return nil
	}
	reviewer, err := webhook.New(o.WebhookConfigFile, o.WebhookVersion, a.Audiences, o.WebhookRetry)
	if err != nil {
		return fmt.Errorf("--authentication-token-webhook-config-file: %w", err)
	}
	*tokens = append(*tokens, tokencache.New(reviewer, tokencache.Options{TTL: o.WebhookCacheTTL, Failures: true, MaxLookups: maxReviews, Clock: o.Clock, Log: o.Log}))
	return nil
}
