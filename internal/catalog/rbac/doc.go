// Package rbac declares who may do what: roles, which are lists of rules, and bindings, which give a role to users,
// groups and service accounts. Whether a request is allowed is the authorizer's business, as is the check that nobody
// hands out rights that they lack.
package rbac
