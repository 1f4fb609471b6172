// Package disruption is the disruption-controller. It keeps the status of PodDisruptionBudgets, by which the eviction API decides whether a pod
// may be evicted now, and clears the DisruptionTarget condition of pods that were to be deleted and were not.
//
// A reconcile of a budget looks its pods up (members.go) and, for budgets with a percentage or maxUnavailable, finds out how many pods their controllers want
// (expected.go). The controllers that no informer has, such as custom resources, are read through their scale subresource (scale.go) before
// the decision (decide.go). If anything fails the budget allows no disruption until it succeeds. The key of a pod is its name after "pods/", which
// no budget's name has (pods.go).
//
// What differs from upstream:
//   - A budget that failed is tried again with back-off; upstream waits for the next change of it or of a pod.
//   - All budgets of a pod are reconciled when it changes, also those that it has left; upstream reconciles any one of those that select it.
//   - A change of a controller's spec.replicas is a reason to reconcile, while many changes of a pod are not. Upstream has it the other way round.
//   - The Event NotDeleted names the budget by namespace and name, not by its namespace twice.
//   - The scale of a custom resource is read in the version that the pod's owner reference has, not in the preferred one.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package disruption
