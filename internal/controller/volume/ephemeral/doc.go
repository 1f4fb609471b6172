// Package ephemeral is the ephemeral-volume-controller. It creates the claims of pods' generic ephemeral volumes, which belong to the pods and go with
// them. A claim of that name that is not the pod's is left alone, and the pod is told.
//
// What differs from upstream: the deletion of a claim that is in the way wakes the pods that wait for its name, whatever the back-off.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package ephemeral
