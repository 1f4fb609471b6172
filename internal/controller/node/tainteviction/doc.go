// Package tainteviction is the taint-eviction-controller: it deletes pods from nodes that have NoExecute taints which the pods do not tolerate, at
// once or when the time is over for which they tolerate them.
//
// When that is can be read off the objects: a taint says when it was added, a pod when it was bound. So a loop that begins anew goes on with the
// same deadlines, where upstream's begins to count again.
package tainteviction
