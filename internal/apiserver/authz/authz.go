// Package authz says whether a user may do what a request asks. An Authorizer allows, denies or has no opinion; a Chain asks
// several in order and the first opinion counts. No opinion at all means no.
//
// Each way of deciding has a folder of its own (rbac, node); New puts them together in the order of --authorization-mode.
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

// named is an authorizer whose reasons a chain marks with its name when nobody had an opinion.
type named interface{ Name() string }
