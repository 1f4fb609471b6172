// Package job runs Jobs: pods that are to succeed, a number of times, some at a time.
//
// Terminal pods may be deleted by anyone at any time, so counting them is the delicate part. Every pod of a Job has a finalizer,
// batch.kubernetes.io/job-tracking, which keeps it until it is counted, and it is counted in steps, each of which can be repeated: the pod's
// uid is added to the Job's status (uncountedTerminatedPods), then the pod's finalizer is removed, then, when the caches have observed that,
// the uid is removed and the counter incremented. Wherever the loop is stopped, the next reconcile goes on from what it observes.
//
// A reconcile works out where the Job stands (state.go), creates or deletes pods (manage.go), and then writes the status and removes
// finalizers (track.go). All of it follows from the Job and its pods; nothing is remembered. That includes the back-off after failures, which
// is computed from the failed pods (backoff.go).
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package job
