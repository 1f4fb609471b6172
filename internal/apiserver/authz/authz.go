// Package authz says whether a user may do what a request asks. An Authorizer allows, denies or has no opinion; a Chain asks
// several in order and the first opinion counts. No opinion at all means no.
package authz

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// Attributes are what a decision is made on.
type Attributes struct {
	User                                *authenticationv1.UserInfo
	Verb                                string
	Resource                            bool // else Path is what is asked for
	Group, Version, Plural, Subresource string
	Namespace, Name                     string
	Path                                string
	FieldSelector, LabelSelector        string
}

// Decision is an authorizer's answer.
type Decision int

const (
	NoOpinion Decision = iota
	Allow
	Deny
)

// Authorizer decides, with a reason that a user may read.
type Authorizer interface {
	Authorize(ctx context.Context, a *Attributes) (Decision, string, error)
}

// Chain asks its members in order; the first opinion counts.
type Chain []Authorizer

// Authorize asks the members.
func (c Chain) Authorize(ctx context.Context, a *Attributes) (Decision, string, error) {
	var reason string
	var failure error
	for _, m := range c {
		decision, why, err := m.Authorize(ctx, a)
		if err != nil {
			failure = err
		}
		if decision != NoOpinion {
			return decision, why, nil
		}
		if why != "" {
			reason = why
		}
	}
	return NoOpinion, reason, failure
}

// AlwaysAllow allows everything.
type AlwaysAllow struct{}

// Authorize allows.
func (AlwaysAllow) Authorize(context.Context, *Attributes) (Decision, string, error) {
	return Allow, "", nil
}
