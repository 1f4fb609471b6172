// Package nodelifecycle is the node-lifecycle-controller. It says which nodes can be relied on:
//
//   - A node that has given no sign of life for a while, neither by its lease nor by its status, has its conditions set to Unknown, and its pods are
//     marked as not ready.
//   - What a node's conditions say, and that it is cordoned, is turned into NoSchedule taints, which the scheduler heeds.
//   - A node that is not ready or silent gets a NoExecute taint, upon which the taint-eviction-controller moves its pods off. Nodes of a zone
//     are tainted one after another, slower if much of the zone is not ready, and not at all if all of the cluster is: then it is more
//     likely this side that is cut off.
//
// The first and the last need more than one look at one node: monitor goes over all nodes every few seconds and remembers what it saw. All of that
// can be seen again, so the loop may end at any point. Taints that are there when it begins stay there, while upstream takes them off
// and puts them on again, which would give every pod its tolerationSeconds once more.
package nodelifecycle
