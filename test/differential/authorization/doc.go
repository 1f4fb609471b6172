// Package authorization compares who may do what on skiff and on upstream Kubernetes.
//
// testdata/objects.yaml is a small cluster: roles and bindings, and pods and volumes on two nodes. Each testdata/*.questions asks what
// users may do in it, one question after the other, with the answers of an upstream server (kube-apiserver with
// --authorization-mode=Node,RBAC, and the controller manager's aggregation of roles) indented below:
//
//	# a comment
//	ada [dev ops]: get deployments.apps/scale in team-a named web
//	  yes RBAC: allowed by RoleBinding "x/team-a" of Role "y" to User "ada"
//
//	ada: get /metrics                          a path
//	ada: list pods fields spec.nodeName=n1     with a field selector
//	ada: rules in team-a                       all that ada may do
//	ada: create                                may ada write this role or binding? (a dry run)
//	| kind: Role
//	  no roles.rbac.authorization.k8s.io "x" is forbidden: …
//
// Upstream evaluates bindings in no particular order; where several allow the same, there are several right answers.
//
// record writes the answers down again, and the default roles and bindings for internal/apiserver/authz/rbac/bootstrap:
// see test/differential/upstream.sh. TestReplay asks skiff's authorizers without a server; a Client asks any server.
//
// It must not import k8s.io/kubernetes: upstream is what skiff is compared with, never a part of it.
package authorization
