// Package job runs Jobs: pods that are to end well, so many times, so many at a time.
//
// Pods that have ended may be deleted by anybody at any time, so counting them is the delicate part. Every pod of a Job has a finalizer,
// batch.kubernetes.io/job-tracking, which keeps it until it is counted, and it is counted in steps, each of which can be repeated: the pod's
// uid goes into the Job's status (uncountedTerminatedPods), then the pod's finalizer goes, then, when the caches know that it has gone, the
// uid goes and the counter goes up. Wherever the loop is stopped, the next look goes on from what it sees.
//
// A look works out where the Job stands (state.go), creates or deletes pods (manage.go), and then writes the status and takes finalizers
// (track.go). All of it follows from the Job and its pods; nothing is remembered. That is so too of the back-off after failures, which is
// worked out from the pods that failed (backoff.go).
package job
