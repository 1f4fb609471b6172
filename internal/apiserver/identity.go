package apiserver

import (
	"context"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/fields"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/plugins"
	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authn/clientcert"
	authnconfig "skiff/internal/apiserver/authn/config"
	"skiff/internal/apiserver/authn/impersonation"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/authz/node"
	"skiff/internal/apiserver/authz/rbac"
	"skiff/internal/apiserver/authz/rbac/bootstrap"
	"skiff/internal/apiserver/guards"
	"skiff/internal/apiserver/response"
)

// identity is who may do what: the chains every request goes through.
type identity struct {
	authentication *authnconfig.Authentication
	impersonator   *impersonation.Impersonator
	roles          bool             // RBAC is on
	aggregator     *rbac.Aggregator // nil if nobody asked for it
	refusals       *refusals
}

// addIdentity puts the chains together.
func (s *Server) addIdentity() error {
	s.identity.refusals = newRefusals(s.opts.Log, refusalsEvery)
	s.background.Go(func() { s.identity.refusals.run(s.stopping) })
	options := s.opts.Authentication
	options.Notes, options.Log = requestNotes{}, s.opts.Log
	var err error
	if s.identity.authentication, err = authnconfig.New(options, s.own); err != nil {
		return err
	}
	var roles *rbac.Authorizer
	chain, err := s.newAuthorizer(&roles)
	if err != nil {
		return err
	}
	s.api.Authorizer = chain
	var roleGuard *rbac.Guard
	s.identity.impersonator = impersonation.New(chain)
	if roles != nil {
		s.identity.roles = true
		if s.opts.AggregateRoles {
			s.identity.aggregator = rbac.NewAggregator(s.own, s.opts.Log)
		}
		roleGuard = rbac.NewGuard(roles, chain, s.own)
	}
	guards.Register(s.api, s.own, roleGuard)
	chosen, err := plugins.New(s.opts.EnableAdmission, s.opts.DisableAdmission, s.own, plugins.Options{Authorizer: chain, Tolerations: *s.opts.Tolerations,
		ConfigFile: s.opts.AdmissionConfigFile, Metrics: s.api.Metrics.Registry})
	if err != nil {
		return err
	}
	s.api.Admission = admission.NewChain(chosen...)
	return nil
}

// newAuthorizer puts the authorizers together and tells which of them goes by roles.
func (s *Server) newAuthorizer(roles **rbac.Authorizer) (authz.Authorizer, error) {
	if s.opts.Authorizer != nil {
		return s.opts.Authorizer, nil
	}
	return authz.New(s.opts.AuthorizationModes, map[string]func() authz.Authorizer{
		authz.ModeNode: func() authz.Authorizer { return node.New(s.own, bootstrap.NodeRules()) },
		authz.ModeRBAC: func() authz.Authorizer {
			*roles = rbac.New(s.own)
			return *roles
		},
	})
}

// ClientCAs are the authorities whose certificates clients may show.
func (s *Server) ClientCAs() []clientcert.CAs { return s.identity.authentication.ClientCAs }

// authenticate says who sent a request.
func (s *Server) authenticate(w http.ResponseWriter, r *http.Request) (*authn.User, error) {
	if user, err := authn.Components(r); user != nil || err != nil {
		return user, err
	}
	if r.Header["Authorization"] != nil {
		r = r.WithContext(context.WithValue(r.Context(), noteKey{}, w))
	}
	user, err := s.identity.authentication.Authenticate(r)
	if err != nil {
		s.identity.refusals.note(r, err)
		return nil, apierrors.NewUnauthorized("Unauthorized")
	}
	if user == nil {
		return nil, apierrors.NewUnauthorized("Unauthorized")
	}
	return user, nil
}

// selectedName is the name of the one object that a selector leaves, if it is such a selector: who may read that object may do so this way, too.
func selectedName(fieldSelector string) string {
	selector, err := fields.ParseSelector(fieldSelector)
	if err != nil {
		return "" // the verb says so
	}
	name, ok := selector.RequiresExactMatch("metadata.name")
	if !ok || len(path.IsValidPathSegmentName(name)) > 0 {
		return ""
	}
	return name
}

// authorize says whether a user may do what a request asks, and as whom it is served.
func (s *Server) authorize(ctx context.Context, r *http.Request, a *authz.Attributes) error {
	if strings.Contains(r.URL.RawQuery, "Selector=") {
		query := r.URL.Query()
		a.FieldSelector, a.LabelSelector = query.Get("fieldSelector"), query.Get("labelSelector")
		if a.Name == "" && (a.Verb == "list" || a.Verb == "watch") {
			a.Name = selectedName(a.FieldSelector)
		}
	}
	other, _, err := s.identity.impersonator.Impersonate(ctx, r.Header, a)
	if err != nil {
		return err
	}
	if other != nil {
		a.User = other
	}
	decision, reason, err := s.api.Authorizer.Authorize(ctx, a)
	if decision != authz.Allow && !(decision == authz.NoOpinion && (s.allowsJourney(a) || s.allowsTunnel(a))) {
		return response.Forbidden(a, reason, err)
	}
	return nil
}

type noteKey struct{}

// requestNotes passes on what authenticators have to say to the client.
type requestNotes struct{}

// Warn adds a Warning header to the answer.
func (requestNotes) Warn(ctx context.Context, text string) {
	w, _ := ctx.Value(noteKey{}).(http.ResponseWriter)
	if header, err := utilnet.NewWarningHeader(299, "-", text); err == nil && w != nil {
		w.Header().Add("Warning", header)
	}
}

// Annotate has nowhere to go: there is no audit log yet.
func (requestNotes) Annotate(context.Context, string, string) {}

// reconcileRoles makes what is missing of the roles and bindings every cluster has, until it is done or the server stops.
func (s *Server) reconcileRoles(ctx context.Context) {
	if !s.identity.roles {
		return
	}
	if err := bootstrap.Reconcile(ctx, s.own, s.opts.Log); err != nil && ctx.Err() == nil {
		s.opts.Log.Error("the default roles and bindings are not all there", "error", err)
	}
	if s.identity.aggregator != nil {
		s.background.Go(func() { s.identity.aggregator.Run(ctx) })
	}
}
