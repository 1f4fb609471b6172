// Package runtime tests a node's container runtime: the bundle that bin/skiff carries, its registry and its network, with real images and containers, through
// CRI as the kubelet does. It needs root on Linux, and what `make` and `make images` build.
//
// It must not import the API server, its store or its cache: a runtime needs none of them.
package runtime
