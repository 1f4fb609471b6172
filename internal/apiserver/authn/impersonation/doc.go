// Package impersonation serves a request as another user, named in the headers Impersonate-User, -Group, -Uid and -Extra-*, if the
// authorizer allows it. There are two kinds. Unconstrained impersonation requires the verb "impersonate" on the other user: all or nothing.
// Constrained impersonation (KEP-5284) requires the permission to impersonate the other user in some mode, and the permission to do in that
// mode what the request does ("impersonate-on:MODE:VERB").
//
// It must not import the API server's root package, its store, its cache or an authenticator.
package impersonation
