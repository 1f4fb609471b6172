// Package nodelifecycle is the node-lifecycle-controller. It detects nodes that have failed:
//
//   - A node whose kubelet has renewed neither its lease nor its status for the grace period has its conditions set to Unknown, and its pods
//     are marked as not ready.
//   - A node's conditions, and that it is cordoned, are turned into NoSchedule taints, which the scheduler heeds.
//   - A node that is not ready or unreachable gets a NoExecute taint, upon which the taint-eviction-controller evicts its pods. Nodes of a zone
//     are tainted one after another, slower if much of the zone is not ready, and not at all if no node of the cluster is ready: then it is
//     more likely that this side is cut off.
//
// The first and the last need more than one reconcile of one node: monitor checks all nodes every few seconds and remembers what it observed.
// All of that can be observed again, so the loop may end at any point. Taints that exist when it starts stay, while upstream removes them and
// adds them again, which would give every pod its tolerationSeconds once more.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package nodelifecycle
