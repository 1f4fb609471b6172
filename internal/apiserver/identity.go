package apiserver

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/initialresources"
	"skiff/internal/apiserver/admission/plugins"
	"skiff/internal/apiserver/authn/clientcert"
	authnconfig "skiff/internal/apiserver/authn/config"
	"skiff/internal/apiserver/authz"
	authzconfig "skiff/internal/apiserver/authz/config"
	"skiff/internal/apiserver/authz/node"
	"skiff/internal/apiserver/authz/rbac"
	"skiff/internal/apiserver/authz/rbac/bootstrap"
	"skiff/internal/apiserver/front"
	"skiff/internal/apiserver/guards"
)

// identity has what authenticates requests, and the state of RBAC.
type identity struct {
	authentication *authnconfig.Authentication
	roles          bool             // RBAC is on
	estimates      bool             // the admission plugin InitialResources is on
	aggregator     *rbac.Aggregator // nil unless Options.AggregateRoles is set
}

// addIdentity sets up authentication, authorization, write guards and admission.
func (s *Server) addIdentity() error {
	options := s.opts.Authentication
	options.Notes, options.Log = front.RequestNotes{}, s.opts.Log
	options.Stopping, options.Dial, options.Metrics = s.stopping, s.opts.Dial, s.api.Metrics.Registry
	var err error
	if s.identity.authentication, err = authnconfig.New(options, s.loopback); err != nil {
		return err
	}
	s.background.Go(s.identity.authentication.Run)
	var roles *rbac.Authorizer
	chain, err := s.newAuthorizer(&roles)
	if err != nil {
		return err
	}
	s.api.Authorizer = chain
	var roleGuard *rbac.Guard
	if roles != nil {
		s.identity.roles = true
		if s.opts.AggregateRoles {
			s.identity.aggregator = rbac.NewAggregator(s.loopback, s.opts.Log)
		}
		roleGuard = rbac.NewGuard(roles, chain, s.loopback)
	}
	guards.Register(s.api, s.loopback, roleGuard)
	chosen, err := plugins.New(s.opts.EnableAdmission, s.opts.DisableAdmission, s.loopback, s.pluginOptions(chain))
	if err != nil {
		return err
	}
	s.api.Admission = admission.NewChain(chosen...)
	s.identity.estimates = slices.ContainsFunc(chosen, func(p admission.Plugin) bool { return p.Name() == initialresources.Name })
	if s.opts.CheckPolicyTypes {
		s.checkPolicyTypes()
	}
	return nil
}

// newAuthorizer returns the chain of authorizers, and sets roles to the RBAC authorizer if the chain has one.
func (s *Server) newAuthorizer(roles **rbac.Authorizer) (authz.Authorizer, error) {
	if s.opts.Authorizer != nil {
		return s.opts.Authorizer, nil
	}
	authorization, err := authzconfig.New(s.opts.Authorization, authzconfig.Parts{
		Node: func() authz.Authorizer { return node.New(s.loopback, bootstrap.NodeRules()) },
		RBAC: func() authz.Authorizer {
			*roles = rbac.New(s.loopback)
			return *roles
		},
		Dial: s.opts.Dial, Metrics: s.api.Metrics.Registry, ServerID: serverID(), Log: s.opts.Log,
	})
	if err != nil {
		return nil, err
	}
	if authorization.Reloads() {
		s.background.Go(func() { authorization.Run(s.stopping) })
	}
	return authorization.Authorizer, nil
}

// ClientCAs returns the certificate authorities of client certificates.
func (s *Server) ClientCAs() []clientcert.CAs { return s.identity.authentication.ClientCAs }

// LegacyTokens returns what makes the tokens for Secrets of type kubernetes.io/service-account-token, nil without a key to sign them.
func (s *Server) LegacyTokens() func(*corev1.ServiceAccount, *corev1.Secret) (string, error) {
	if issuer := s.identity.authentication.Issuer; issuer != nil {
		return issuer.LegacyToken
	}
	return nil
}

// reconcileRoles creates or completes the default roles and bindings. It retries until that is done or the server stops, and then starts role
// aggregation.
func (s *Server) reconcileRoles(ctx context.Context) {
	if !s.identity.roles {
		return
	}
	if err := bootstrap.Reconcile(ctx, s.loopback, s.opts.Log); err != nil && ctx.Err() == nil {
		s.opts.Log.Error("failed to reconcile the default roles and bindings", "error", err)
	}
	if s.identity.aggregator != nil {
		s.background.Go(func() { s.identity.aggregator.Run(ctx) })
	}
}
