// Package rbac declares roles, which are lists of rules, and bindings, which grant a role to users, groups and service
// accounts. The authorizer decides whether a request is allowed, and checks that nobody grants permissions that they do not
// have.
//
// The API server applies these declarations to every request for the group: it defaults, prepares and validates objects with
// them before they are stored.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package rbac
