package authz

import (
	"context"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"skiff/internal/apiserver/authn"
)

// Chain asks its members in order; the first that has an opinion decides.
type Chain []Authorizer

// Authorize asks the members in order. If none has an opinion, it returns the reasons of all.
func (c Chain) Authorize(ctx context.Context, a *Attributes) (Decision, string, error) {
	var reasons []string
	var errs []error
	for _, member := range c {
		decision, reason, err := member.Authorize(ctx, a)
		if decision != NoOpinion {
			return decision, reason, err
		}
		if err != nil {
			errs = append(errs, err)
		}
		if reason == "" {
			continue
		}
		if m, ok := member.(named); ok {
			reason = m.Name() + ": " + reason
		}
		reasons = append(reasons, reason)
	}
	return NoOpinion, strings.Join(reasons, "\n"), utilerrors.NewAggregate(errs)
}

// RulesFor returns the rules of all members.
func (c Chain) RulesFor(ctx context.Context, user *authn.User, namespace string) (Rules, error) {
	var sum Rules
	var errs []error
	for _, member := range c {
		rules, err := RulesOf(ctx, member, user, namespace)
		if err != nil {
			errs = append(errs, err)
		}
		sum.Resources, sum.Others = append(sum.Resources, rules.Resources...), append(sum.Others, rules.Others...)
		sum.Incomplete = sum.Incomplete || rules.Incomplete
	}
	return sum, utilerrors.NewAggregate(errs)
}
