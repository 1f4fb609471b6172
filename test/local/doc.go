// Package local tests clusters of several nodes on one machine as a person has them: `skiff up --nodes 3`, real containers, nodes that are stopped, started
// and cut off, programs that are killed at any moment, and that nothing is left of it all. It needs root on Linux, and what `make` and `make images` build.
// What is random comes from -seed, which is printed; -rounds says how often `skiff up` is killed, -fault-rounds how often nodes are, and
// -volume-rounds how often something is while volumes are in use; `make e2e` does more of each.
//
// It must not import skiff's components: it runs the program as a user does, and looks at nodes by internal/cluster/local.
package local
