// Package node is shared by the loops about nodes: the index of pods by node, taints, conditions and Events of nodes. The loops are the folders
// beside this file: nodelifecycle detects unreachable nodes and taints them, tainteviction evicts pods from tainted nodes, nodeipam
// allocates pod CIDRs, ttl sets how long kubelets may cache what they have read.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package node
