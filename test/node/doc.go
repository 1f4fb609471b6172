// Package node tests a whole node as a user has it: a cluster that `skiff up` starts, real images and containers, kubectl; and faults: programs are killed, the
// disk is full, the API cannot be reached. It needs root on Linux, and what `make` and `make images` build. Cases that
// take long are run with -slow, as `make e2e` does, which also kills for longer (-kill-rounds). What is random comes from -seed, which is printed.
//
// It must not import the API server, its store or its cache: it tests them through bin/skiff and the API.
package node
