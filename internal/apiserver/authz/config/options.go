package config

import (
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	api "k8s.io/apiserver/pkg/apis/apiserver"

	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/reviewclient"
)

// Options are the flags about authorization.
type Options struct {
	Modes                       []string      // --authorization-mode: the authorizers, in the order in which they are asked
	PolicyFile                  string        // --authorization-policy-file, of the mode ABAC
	WebhookConfigFile           string        // --authorization-webhook-config-file: a kubeconfig, of the mode Webhook
	WebhookVersion              string        // --authorization-webhook-version, of the SubjectAccessReview that is sent
	WebhookCacheAuthorizedTTL   time.Duration // --authorization-webhook-cache-authorized-ttl
	WebhookCacheUnauthorizedTTL time.Duration // --authorization-webhook-cache-unauthorized-ttl
	// ConfigFile is the path of --authorization-config, instead of Modes and the flags of Webhook.
	ConfigFile string
	// ModesGiven reports whether any of the flags that ConfigFile replaces was given. Without it those count that are not empty.
	ModesGiven func() bool
}

// Default returns the default values of the flags, which have no modes.
func Default() Options {
	return Options{WebhookVersion: "v1beta1", WebhookCacheAuthorizedTTL: 5 * time.Minute, WebhookCacheUnauthorizedTTL: 30 * time.Second}
}

// errConfigAndModes refuses --authorization-config beside the flags that it replaces.
var errConfigAndModes = errors.New("--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined")

// Check returns what is wrong with the flags, without looking at files.
func (o *Options) Check() error {
	if o.ConfigFile != "" {
		given := len(o.Modes) > 0 || o.WebhookConfigFile != ""
		if o.ModesGiven != nil {
			given = o.ModesGiven()
		}
		if given {
			return errConfigAndModes
		}
		return nil
	}
	var errs []error
	if len(o.Modes) == 0 {
		errs = append(errs, errors.New("at least one authorization-mode must be passed"))
	}
	repeated := false
	for i, mode := range o.Modes {
		repeated = repeated || slices.Contains(o.Modes[:i], mode)
		if !slices.Contains(authz.Modes(), mode) {
			errs = append(errs, fmt.Errorf("authorization-mode %q is not a valid mode", mode))
		}
		if mode == authz.ModeABAC && o.PolicyFile == "" {
			errs = append(errs, errNoPolicyFile)
		}
		if mode == authz.ModeWebhook && o.WebhookConfigFile == "" {
			errs = append(errs, errors.New("authorization-mode Webhook's authorization config file not passed"))
		}
	}
	if o.PolicyFile != "" && !slices.Contains(o.Modes, authz.ModeABAC) {
		errs = append(errs, errors.New("cannot specify --authorization-policy-file without mode ABAC"))
	}
	if o.WebhookConfigFile != "" && !slices.Contains(o.Modes, authz.ModeWebhook) {
		errs = append(errs, errors.New("cannot specify --authorization-webhook-config-file without mode Webhook"))
	}
	if repeated {
		errs = append(errs, fmt.Errorf("authorization-mode %q has mode specified more than once", o.Modes))
	}
	return utilerrors.NewAggregate(errs)
}

var errNoPolicyFile = errors.New("authorization-mode ABAC's authorization policy file not passed")

// configuration returns the configuration that the modes and the flags of Webhook stand for.
func (o *Options) configuration() *api.AuthorizationConfiguration {
	c := &api.AuthorizationConfiguration{}
	for _, mode := range o.Modes {
		a := api.AuthorizerConfiguration{Type: api.AuthorizerType(mode), Name: nameOf(mode)}
		if mode == authz.ModeWebhook {
			a.Name = "default"
			a.Webhook = &api.WebhookConfiguration{
				AuthorizedTTL: metav1.Duration{Duration: o.WebhookCacheAuthorizedTTL}, CacheAuthorizedRequests: o.WebhookCacheAuthorizedTTL != 0,
				UnauthorizedTTL: metav1.Duration{Duration: o.WebhookCacheUnauthorizedTTL}, CacheUnauthorizedRequests: o.WebhookCacheUnauthorizedTTL != 0,
				Timeout: metav1.Duration{Duration: reviewclient.DefaultTimeout}, FailurePolicy: api.FailurePolicyNoOpinion, SubjectAccessReviewVersion: o.WebhookVersion,
				ConnectionInfo: api.WebhookConnectionInfo{Type: api.AuthorizationWebhookConnectionInfoTypeKubeConfigFile, KubeConfigFile: &o.WebhookConfigFile}}
		}
		c.Authorizers = append(c.Authorizers, a)
	}
	return c
}
