// Command loops runs hollow nodes for a server and measures how fast its loops and its scheduler bring workloads to Ready on them,
// and how fast claims are bound: to volumes that are there, and to those of a provisioner in this program.
//
//	loops --kubeconfig FILE [--nodes N] [--replicas N] [--claims N] [--rounds N]
//
// The kubeconfig's user must be allowed to impersonate nodes. Each measurement is the median of the rounds. Like kbench it prints a line per
// measurement: name, value, unit.
//
// It must not import the API server of skiff, its store or its cache: it measures any server over the network.
package main
