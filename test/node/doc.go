// Package node tests a node's container runtime with what it is made of: the bundle that bin/skiff carries, its registry and its network,
// with real images and containers. It needs root on Linux, and what `make bundle` and `make images` build.
package node
