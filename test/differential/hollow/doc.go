// Command hollow runs hollow nodes for another server, so that upstream's scheduler and controllers have nodes to work with.
//
//	go run ./test/differential/hollow [--kubeconfig FILE] [--count N]
//
// It must not import k8s.io/kubernetes: upstream is what skiff is compared with, never a part of it.
package main
