// Package rbac decides by roles and bindings: a user may do what a rule of a role says that a binding gives to the user, or to a group
// of the user, everywhere (ClusterRoleBinding) or in one namespace (RoleBinding).
//
// Questions are answered from an index that follows the four resources, so that their cost depends on what is bound to the one who
// asks and not on how many bindings there are. Guard keeps users from granting what they do not have; the default roles are in
// bootstrap, and Aggregator fills those roles whose rules come from others.
package rbac
