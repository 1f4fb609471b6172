// Package status says what a kubelet reports of its pods, and reports it.
//
// Of derives a pod's status from what the runtime knows of its containers, what probes say, and what was reported before: a pure function. Ended
// and Rejected are its counterparts for pods of which nothing runs any more, or ever did. Writer sends statuses to the API, only when they change, one request
// at a time for each pod, and deletes pods that are being deleted when all of them is gone.
package status
