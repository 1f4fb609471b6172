// Package node is what the loops about nodes share: who runs where, taints, and how people are told about a node. The loops themselves
// are the folders beside this file: nodelifecycle notices nodes that went silent and taints them, tainteviction moves pods off tainted nodes,
// nodeipam hands out ranges of pod addresses, ttl says how long what kubelets have read is good for.
package node
