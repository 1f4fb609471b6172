// Command record asks a fresh upstream server the questions about authorization, and writes down its answers, default roles and default
// bindings.
//
//	go run ./test/differential/authorization/record [--kubeconfig FILE]
//
// The server must run with --authorization-mode=Node,RBAC, and beside it a controller manager with at least the controller
// clusterrole-aggregation-controller: upstream.sh starts both.
//
// It must not import k8s.io/kubernetes: upstream is what skiff is compared with, never a part of it.
package main
