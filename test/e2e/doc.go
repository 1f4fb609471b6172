// Package e2e tests whole servers as clients see them: informers over restarts, and several schedulers side by side.
//
// It must not import k8s.io/kubernetes: upstream is what skiff is compared with, never a part of it.
package e2e
