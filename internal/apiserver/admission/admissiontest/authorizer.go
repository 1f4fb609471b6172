package admissiontest

import (
	"context"

	"skiff/internal/apiserver/authz"
)

// Allow is an authorizer that allows one verb on one name and has no opinion on anything else.
type Allow struct{ Verb, Name string }

// Authorize implements authz.Authorizer.
func (w Allow) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	if a.Verb == w.Verb && a.Name == w.Name {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}
