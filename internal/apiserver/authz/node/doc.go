// Package node lets each kubelet do what its own node needs. A kubelet is a user system:node:NAME in the group system:nodes. It may read
// the pods bound to its node and what those pods refer to: secrets, config maps, claims and their volumes, service accounts and their
// tokens. It may write its own Node, Lease and CSINode. For all else it has the rules of the role system:node.
//
//	secret, config map, claim, resource claim, service account  <-  pod  ->  node
//	secret  <-  volume  ->  claim  <-  pod  ->  node
//
// What a pod or a volume says is read from the object itself; only the way back, from what is referred to, needs an index. What a node
// may write into an object is not decided here but by the NodeRestriction admission plugin.
package node
