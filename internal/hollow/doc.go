// Package hollow runs hollow nodes: their kubelets are real as far as the API can tell, and their containers are imaginary. They register, renew their
// leases, start the pods that are bound to them, report them running and ready, and terminate them when they are deleted or complete, each with its own
// identity and with no more rights than a node has. They are for trying out schedulers and control planes at a size for which there are no machines.
//
// Thousands live in one process, and cost little while nothing happens: one watch on pods and one on nodes serve all of them, work queues with timers
// requeue leases and pods when they are due, and a few workers do what is due. What becomes of a pod follows from the pod itself (decide is a pure
// function), so nodes can be stopped and started again at any point.
//
// Annotations of a pod set how its containers behave where that differs from the options:
//
//	hollow.skiff/ready-after: 2s   how long they take to start
//	hollow.skiff/runs-for: 5s      after what time they end by themselves
//	hollow.skiff/exit-code: "1"    their exit code then
//	hollow.skiff/cpu: 250m         what each of them uses; its requests if there is no annotation
//	hollow.skiff/memory: 64Mi
//	hollow.skiff/stops-after: 3s   how long they take to stop when the pod is deleted, at most the grace period
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package hollow
