package config

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/wait"
	api "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/utils/clock"

	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/authz/abac"
	"skiff/internal/apiserver/authz/webhook"
	"skiff/internal/apiserver/reviewclient"
)

// Parts are what authorizers are made of besides the options.
type Parts struct {
	Node, RBAC func() authz.Authorizer // called at most once, if the mode is on
	Dial       func(ctx context.Context, network, address string) (net.Conn, error)
	Metrics    prometheus.Registerer
	ServerID   string           // of this server, for metrics
	Backoff    *wait.Backoff    // of webhooks; upstream's if nil
	Clock      clock.WithTicker // the real clock if nil
	Log        *slog.Logger
}

// Authorization has the authorizer of a server.
type Authorization struct {
	Authorizer authz.Authorizer

	options  Options
	parts    Parts
	metrics  *metrics
	lasting  map[string]authz.Authorizer // those that are no webhooks, by mode; they stay over reloads
	webhooks []*webhook.Authorizer       // of the current chain
	reload   *reload                     // nil without a configuration file
	// webhookMetrics registers the metrics of webhooks for the first of them.
	webhookMetrics func() *webhook.Metrics
}

// New makes the authorizers that the options describe.
func New(o Options, p Parts) (*Authorization, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if p.Clock == nil {
		p.Clock = clock.RealClock{}
	}
	if p.Backoff == nil {
		backoff := reviewclient.DefaultBackoff()
		p.Backoff = &backoff
	}
	a := &Authorization{options: o, parts: p, metrics: newMetrics(p.Metrics), lasting: map[string]authz.Authorizer{},
		webhookMetrics: sync.OnceValue(func() *webhook.Metrics { return webhook.NewMetrics(p.Metrics) })}
	configuration := o.configuration()
	if o.ConfigFile != "" {
		var err error
		if a.reload, configuration, err = a.loadFirst(); err != nil {
			return nil, err
		}
	}
	for _, authorizer := range configuration.Authorizers {
		if err := a.addLasting(string(authorizer.Type)); err != nil {
			return nil, err
		}
	}
	chain, webhooks, err := a.build(configuration)
	if err != nil {
		return nil, err
	}
	a.Authorizer, a.webhooks = chain, webhooks
	if a.reload != nil {
		a.reload.current.Store(&chain)
		a.Authorizer = a.reload
	}
	return a, nil
}

// addLasting makes the authorizer of a mode, unless it is a webhook.
func (a *Authorization) addLasting(mode string) (err error) {
	switch mode {
	case authz.ModeAlwaysAllow:
		a.lasting[mode] = authz.AlwaysAllow{}
	case authz.ModeAlwaysDeny:
		a.lasting[mode] = authz.AlwaysDeny{}
	case authz.ModeNode:
		a.lasting[mode] = a.parts.Node()
	case authz.ModeRBAC:
		a.lasting[mode] = a.parts.RBAC()
	case authz.ModeABAC:
		if a.options.PolicyFile == "" {
			return errNoPolicyFile
		}
		a.lasting[mode], err = abac.Read(a.options.PolicyFile, a.parts.Log)
	}
	return err
}

// build returns the chain of a configuration, and the webhooks in it.
func (a *Authorization) build(c *api.AuthorizationConfiguration) (chain authz.Chain, webhooks []*webhook.Authorizer, err error) {
	chain = authz.Chain{authz.Masters{}}
	for i := range c.Authorizers {
		one := &c.Authorizers[i]
		member := a.lasting[string(one.Type)]
		switch {
		case one.Type == api.TypeWebhook:
			made, err := a.webhook(one)
			if err != nil {
				return nil, nil, fmt.Errorf("authorizer %s: %w", one.Name, err)
			}
			member, webhooks = made, append(webhooks, made)
		case member == nil && (one.Type == authz.ModeAlwaysAllow || one.Type == authz.ModeAlwaysDeny):
			if err := a.addLasting(string(one.Type)); err != nil {
				return nil, nil, err
			}
			member = a.lasting[string(one.Type)]
		case member == nil:
			return nil, nil, errNotAtStart(string(one.Type))
		}
		chain = append(chain, a.metrics.counted(string(one.Type), one.Name, member))
	}
	return chain, webhooks, nil
}

// webhook returns the authorizer of a webhook's configuration.
func (a *Authorization) webhook(c *api.AuthorizerConfiguration) (*webhook.Authorizer, error) {
	w := c.Webhook
	client, err := reviewclient.New(reviewclient.Options{Kubeconfig: *w.ConnectionInfo.KubeConfigFile, Timeout: w.Timeout.Duration, Dial: a.parts.Dial})
	if err != nil {
		return nil, err
	}
	conditions, errs := validation.ValidateAndCompileMatchConditions(compiler{}, w.MatchConditions)
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	o := webhook.Options{Name: c.Name, Client: client, Version: w.SubjectAccessReviewVersion, DenyOnError: w.FailurePolicy == api.FailurePolicyDeny, Conditions: conditions,
		Backoff: *a.parts.Backoff, Metrics: a.webhookMetrics(), Clock: a.parts.Clock, Log: a.parts.Log}
	if w.CacheAuthorizedRequests {
		o.AuthorizedTTL = w.AuthorizedTTL.Duration
	}
	if w.CacheUnauthorizedRequests {
		o.UnauthorizedTTL = w.UnauthorizedTTL.Duration
	}
	return webhook.New(o)
}

// lastingModes returns the modes that every later configuration must have: those of the first one, but webhooks.
func lastingModes(c *api.AuthorizationConfiguration) (modes []string) {
	for _, one := range c.Authorizers {
		if one.Type != api.TypeWebhook && !slices.Contains(modes, string(one.Type)) {
			modes = append(modes, string(one.Type))
		}
	}
	return modes
}
