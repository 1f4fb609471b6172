// Package nodestatus keeps the API's Node and Lease of this node: it registers the node, patches its status (addresses, capacity and allocatable, conditions,
// images, runtime handlers) when that changes or has not been reported for a while, and renews the lease that says that the node is alive.
//
// The kubelet starts it beside the pod workers. They ask it for the node as the API has it; the eviction manager (package housekeeping) tells it what the
// node has too little of.
//
// It must not import the API server, its store or its cache, nor another component: the kubelet meets them only at the API, through client.
package nodestatus
