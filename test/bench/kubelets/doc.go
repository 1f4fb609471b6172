// Command kubelets watches a server as the kubelets of a large cluster do, each the pods of its own node, and measures how late they observe
// theirs.
//
//	kubelets --kubeconfig FILE [--nodes N] [--pods N] [--rate N]
//
// It creates pods that are bound already, at a steady rate, one for each node in turn, in namespace kubelets, and deletes them afterwards. Like
// kbench it prints a line per measurement: name, value, unit.
//
// It must not import the API server of skiff, its store or its cache: it measures any server over the network.
package main
