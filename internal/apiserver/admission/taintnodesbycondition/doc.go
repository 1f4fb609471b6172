// Package taintnodesbycondition is the admission plugin TaintNodesByCondition. It taints new nodes as not ready, so that no pod is
// scheduled to a node before it has reported. The node lifecycle controller removes the taint.
//
// It must not import the API server's root package, its store, its cache or another plugin.
package taintnodesbycondition
