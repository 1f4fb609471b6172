package webhook

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/webhook/client"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
	"skiff/internal/journey"
)

// Names of the plugins.
const (
	MutatingName   = "MutatingAdmissionWebhook"
	ValidatingName = "ValidatingAdmissionWebhook"
)

// Options hold what the plugins work with.
type Options struct {
	Store objects.Reader
	// Authorizer is the API server's authorizer, for the variable authorizer of match conditions.
	Authorizer authz.Authorizer
	// Resolve returns HOST:PORT of a service; if nil, a ready endpoint of its EndpointSlices.
	Resolve client.Resolve
	// Dial connects to webhook servers; directly if nil.
	Dial client.Dial
	// Credentials are for webhook servers; nil has none.
	Credentials *client.Credentials
	// Metrics is where the plugins register their metrics; nil registers none.
	Metrics prometheus.Registerer
	// Stopping ends when the server stops: connections are closed. It may be nil.
	Stopping context.Context
	// Log gets a line for every webhook that fails; nil logs nothing.
	Log *slog.Logger
}

// plugin is what both plugins have in common.
type plugin struct {
	hooks
	name, kind string // kind is that of Call
	step       string // the type of the webhooks in metrics
	mutating   bool
	store      objects.Reader
	metrics    *metrics
	log        *slog.Logger
}

func newPlugin(o Options, name, kind, step string, mutating bool) *plugin {
	if o.Resolve == nil {
		o.Resolve = client.NewResolver(o.Store).Resolve
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &plugin{hooks: hooks{pool: client.NewPool(o.Resolve, o.Dial, o.Credentials), authorizer: o.Authorizer}, name: name, kind: kind, step: step, mutating: mutating,
		store: o.Store, metrics: newMetrics(o.Metrics), log: o.Log}
	if o.Stopping != nil {
		context.AfterFunc(o.Stopping, p.pool.Close)
	}
	return p
}

// Name implements admission.Plugin.
func (p *plugin) Name() string { return p.name }

// Handles implements admission.Plugin: it reports whether the rules of a webhook select the request.
func (p *plugin) Handles(a *admission.Attributes) bool {
	current := p.current.Load()
	return current != nil && len(current.candidates(a)) > 0
}

// Mutating is the plugin that calls mutating webhooks.
type Mutating struct{ *plugin }

// NewMutating returns the plugin MutatingAdmissionWebhook.
func NewMutating(o Options) *Mutating {
	m := &Mutating{newPlugin(o, MutatingName, journey.MutatingWebhook, "admit", true)}
	m.follow(o.Store, "mutatingwebhookconfigurations", func(obj catalog.Object) []webhook {
		return obj.(*admissionregistrationv1.MutatingWebhookConfiguration).Webhooks
	})
	return m
}

// Validating is the plugin that calls validating webhooks.
type Validating struct{ *plugin }

// NewValidating returns the plugin ValidatingAdmissionWebhook.
func NewValidating(o Options) *Validating {
	v := &Validating{newPlugin(o, ValidatingName, journey.ValidatingWebhook, "validating", false)}
	v.follow(o.Store, "validatingwebhookconfigurations", func(obj catalog.Object) []webhook {
		var all []webhook
		for _, h := range obj.(*admissionregistrationv1.ValidatingWebhookConfiguration).Webhooks {
			all = append(all, webhook{Name: h.Name, ClientConfig: h.ClientConfig, Rules: h.Rules, FailurePolicy: h.FailurePolicy, MatchPolicy: h.MatchPolicy,
				NamespaceSelector: h.NamespaceSelector, ObjectSelector: h.ObjectSelector, SideEffects: h.SideEffects, TimeoutSeconds: h.TimeoutSeconds,
				AdmissionReviewVersions: h.AdmissionReviewVersions, MatchConditions: h.MatchConditions})
		}
		return all
	})
	return v
}
