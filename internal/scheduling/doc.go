// Package scheduling decides where a pod may run and where it would run best. It is the pure part of the scheduler: data and plugins, with no client,
// no clock and no goroutine. Package scheduler drives it; the DaemonSet controller and the kubelet use its predicates.
//
// The data is immutable: a Pod is a pod with all that plugins read, parsed once, a Node is a node with the pods on it and their sums, a Snapshot is all
// nodes at one moment. The next snapshot is made from the last (Snapshot.Update); what did not change is shared.
//
// Deciding for one pod is, with the plugins of a Profile:
//
//	for each FilterPlugin:  result := PreFilter(pod, snapshot)         once; the plugin may not apply, or refuse the pod on all nodes
//	for each node:          result.Check.Filter(node)                  until one refuses; the rest are the feasible nodes
//	for each ScorePlugin:   scorer := PreScore(pod, snapshot, feasible)
//	                        scorer.Score(feasible, scores); scorer.Normalize(feasible, scores); times weight, summed
//	for each Reserver:      check.Reserve(node)                        what must be done before the pod is bound to the node with the highest sum
//
// A Check that is neither Adjustable nor Uncached and a Scorer that is Local read nothing but the pod and the node they are called with, so their results are valid as
// long as the *Node is the same pointer, and for every pod with the same Snapshot.Signature.
//
// It must not import any other package of skiff: it is pure.
package scheduling
