// Package scheduling checks what upstream's conformance suite checks of scheduling, on a cluster in this process with hollow nodes. Which test
// checks what is listed in test/e2e/conformance.txt.
//
// It must not import k8s.io/kubernetes: upstream is what skiff is compared with, never a part of it.
package scheduling
