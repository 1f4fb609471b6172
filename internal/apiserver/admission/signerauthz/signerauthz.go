package signerauthz

import (
	"context"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
)

// Allowed reports whether the user has the verb on the signer by its name, or on all signers of its domain as "domain/*".
// An error of the authorizer counts as a denial.
func Allowed(ctx context.Context, authorizer authz.Authorizer, user *authn.User, verb, signer string) bool {
	if allowed(ctx, authorizer, user, verb, signer) {
		return true
	}
	domain, _, _ := strings.Cut(signer, "/")
	return allowed(ctx, authorizer, user, verb, domain+"/*")
}

func allowed(ctx context.Context, authorizer authz.Authorizer, user *authn.User, verb, name string) bool {
	decision, _, err := authorizer.Authorize(ctx, &authz.Attributes{User: user, Verb: verb, Resource: true, Group: certificatesv1.GroupName, Version: "*", Plural: "signers", Name: name})
	return err == nil && decision == authz.Allow
}
