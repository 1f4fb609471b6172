// Package authz decides whether a user may do what a request asks for. An Authorizer allows, denies or has no opinion; a Chain asks several
// in order, and the first opinion decides. A request on which no authorizer has an opinion is forbidden. Authorization comes after
// authentication and flow control, before decoding and admission.
//
// Each mode that needs more than its name has a folder of its own (rbac, node, abac, webhook); config puts them together in the order of
// --authorization-mode or --authorization-config.
//
// It must not import the API server's root package, its store, its cache or one of the folders below it.
package authz
