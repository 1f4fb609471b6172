// Package rbac is the authorization mode RBAC: a user may do what a rule of a role allows that a binding grants to the user or to one of
// the user's groups, everywhere (ClusterRoleBinding) or in one namespace (RoleBinding).
//
// Decisions are made from an index that is updated by events of the four resources, so that their cost depends on what is bound to the user
// and not on the number of bindings. Guard prevents privilege escalation; the default roles are in bootstrap, and Aggregator fills the
// roles that have an aggregationRule.
//
// It must not import the API server's root package, its store or its cache: it reads and writes through objects.Store.
package rbac
