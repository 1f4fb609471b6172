// Package journey tests journeys over a whole cluster: every component that works on a request records a step, and the steps join into one tree.
//
// It must not import k8s.io/kubernetes: upstream is what skiff is compared with, never a part of it.
package journey
