// Package runtime tests a node's container runtime with what it is made of: the bundle that bin/skiff carries, its registry and its network,
// with real images and containers, through CRI as the kubelet does. It needs root on Linux, and what `make` and `make images` build.
package runtime
