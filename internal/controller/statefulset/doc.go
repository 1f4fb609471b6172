// Package statefulset runs pods that keep their names and their claims: web-0, web-1, ... A pod that is gone is replaced by one of the same name,
// with the claims of the one before.
//
// A reconcile first brings the ControllerRevisions of the template in order (history.go). Then it goes through the replicas by ordinal, the pods
// beyond them, which are to be deleted, and last the pods of an old template (replicas.go, rolling.go), and updates the status (status.go).
// Claims are created before their pod and are owned as persistentVolumeClaimRetentionPolicy says (claims.go).
//
// With podManagementPolicy OrderedReady, whatever is not as it should be blocks what comes after it. So a pod that never becomes ready blocks
// the rollout that would mend it, until it is deleted by hand, as upstream documents.
//
// What differs from upstream: a claim has its owner from the moment it is created; pods with zeros before their ordinal (web-01) are not members; a claim
// that is deleted requeues the sets that select it, as a pod may be waiting for that.
//
// It must not import the API server, its store or its cache, or another component such as the scheduler: components meet only at the API.
package statefulset
