// Package node tests a whole node as a person has it: a cluster that `skiff up` starts, real images and containers, kubectl. It needs root on
// Linux, and what `make` and `make images` build. Cases that take long are run with -slow, as `make e2e` does.
package node
