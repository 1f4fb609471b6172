package rbac

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/objects"
)

// Authorizer allows what roles and bindings allow. It never denies.
type Authorizer struct{ index *index }

var (
	_ authz.Authorizer      = (*Authorizer)(nil)
	_ authz.RulesAuthorizer = (*Authorizer)(nil)
)

// New returns an authorizer by the roles and bindings of reader.
func New(reader objects.Reader) *Authorizer { return &Authorizer{newIndex(reader)} }

// Name returns the name of the authorizer in reasons.
func (*Authorizer) Name() string { return "rbac" }

// Authorize allows a request that a rule of a bound role allows. If none does, the reason lists bound roles that do not exist.
func (a *Authorizer) Authorize(_ context.Context, at *authz.Attributes) (authz.Decision, string, error) {
	if at.User == nil {
		return authz.NoOpinion, "", nil
	}
	ix := a.index
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	var errs []error
	for g := range ix.grantsTo(at.User, at.Namespace) {
		if Allows(g.role.rules, at) {
			return authz.Allow, ix.first(g, at.User).describe(), nil
		}
		if !g.role.exists {
			errs = append(errs, g.role.missing())
		}
	}
	if len(errs) == 0 {
		return authz.NoOpinion, "", nil
	}
	return authz.NoOpinion, fmt.Sprintf("RBAC: %v", utilerrors.NewAggregate(errs)), nil
}

// RulesFor returns the rules of a user, cluster-wide and in a namespace.
func (a *Authorizer) RulesFor(_ context.Context, user *authn.User, namespace string) (authz.Rules, error) {
	var rules authz.Rules
	var errs []error
	for _, r := range a.rolesOf(user, namespace) {
		if err := r.missing(); err != nil {
			errs = append(errs, err)
		}
		for i := range r.rules {
			rule := &r.rules[i]
			if len(rule.Resources) > 0 {
				rules.Resources = append(rules.Resources, authorizationv1.ResourceRule{
					Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames})
			}
			if len(rule.NonResourceURLs) > 0 {
				rules.Others = append(rules.Others, authorizationv1.NonResourceRule{Verbs: rule.Verbs, NonResourceURLs: rule.NonResourceURLs})
			}
		}
	}
	return rules, utilerrors.NewAggregate(errs)
}

// rolesOf returns the roles that are bound to a user, one for each binding, those of ClusterRoleBindings first. Their rules are shared and must not be changed.
func (a *Authorizer) rolesOf(user *authn.User, namespace string) []role {
	ix := a.index
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	var bindings []*binding
	for g := range ix.grantsTo(user, namespace) {
		bindings = append(bindings, g.binding)
	}
	slices.SortFunc(bindings, func(x, y *binding) int {
		return cmp.Or(strings.Compare(x.namespace, y.namespace), strings.Compare(x.name, y.name))
	})
	var roles []role
	for _, b := range slices.Compact(bindings) { // a binding may name both the user and its group
		roles = append(roles, *b.role)
	}
	return roles
}
