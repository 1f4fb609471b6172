package authz

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// Attributes describe a request to authorizers.
type Attributes struct {
	User                                *authenticationv1.UserInfo
	Verb                                string
	Resource                            bool // a request for a resource; otherwise for Path
	Group, Version, Plural, Subresource string
	Namespace, Name                     string
	Path                                string
	FieldSelector, LabelSelector        string
}

// Decision is the decision of an authorizer.
type Decision int

const (
	NoOpinion Decision = iota
	Allow
	Deny
)

// Authorizer decides whether a request is allowed. The reason may be shown to the user.
type Authorizer interface {
	Authorize(ctx context.Context, a *Attributes) (Decision, string, error)
}

// named is an authorizer whose name a chain puts before its reason when no member has an opinion.
type named interface{ Name() string }
