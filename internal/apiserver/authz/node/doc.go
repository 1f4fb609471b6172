// Package node is the authorization mode Node: each kubelet may do what its own node needs. A kubelet is a user system:node:NAME in the
// group system:nodes. It may read the pods bound to its node and what those pods refer to: secrets, config maps, claims and their volumes,
// service accounts and their tokens. It may write its own Node, Lease and CSINode. For everything else it has the rules of the role
// system:node.
//
//	secret, config map, claim, resource claim, service account  <-  pod  ->  node
//	secret  <-  volume  ->  claim  <-  pod  ->  node
//
// References are read from the pod or volume itself; only the reverse direction, from the referenced object to nodes, needs an index. What
// a node may write into an object is decided by the NodeRestriction admission plugin.
//
// It must not import the API server's root package, its store or its cache: it reads through objects.Reader.
package node
