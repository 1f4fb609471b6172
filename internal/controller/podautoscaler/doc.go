// Package podautoscaler is the horizontal-pod-autoscaler-controller. Every sync period it compares what the pods of each autoscaler's target use with what
// they should use, and scales the target.
//
// A reconcile reads the target's scale (scale.go), finds the target's pods (pods.go) and whether another autoscaler has them too (selectors.go), reads
// what the metrics APIs say of them (metrics.go), and decides (decide.go): each metric proposes a number of replicas (propose.go, usage.go), the
// largest is brought within what the autoscaler allows and what it has proposed lately (limit.go). What it has proposed and done lately is in memory
// (history.go), as upstream's is: after a restart it begins anew with the number of replicas that it finds.
//
// Autoscalers of one namespace share a list of the metrics of its pods and an index of its pods by label, so that a thousand of them cost little more
// than one.
//
// What differs from upstream:
//   - Metrics of pods that the API does not have (any more) count for nothing; upstream counts them for targets that are not utilizations.
//   - The scale of a target must be an autoscaling/v1 Scale; upstream also reads those of extensions/v1beta1 and apps/v1beta1.
//   - A metrics API that does not answer holds a reconcile up for a sync period at most.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package podautoscaler
