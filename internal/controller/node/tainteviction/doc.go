// Package tainteviction is the taint-eviction-controller: it deletes pods from nodes with NoExecute taints that the pods do not tolerate, at once or
// when their tolerationSeconds have passed.
//
// That time follows from the objects: a taint has the time it was added, a pod the time it was bound. So a restarted loop keeps the same deadlines,
// where upstream's begins to count again.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package tainteviction
