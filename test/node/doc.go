// Package node tests a whole node as a person has it: a cluster that `skiff up` starts, real images and containers, kubectl; and what becomes of it when
// something goes wrong: programs are killed, the disk is full, the API is away. It needs root on Linux, and what `make` and `make images` build. Cases that
// take long are run with -slow, as `make e2e` does, which also kills for longer (-kill-rounds). What is random comes from -seed, which is printed.
package node
