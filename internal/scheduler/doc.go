// Package scheduler assigns pods to nodes, as kube-scheduler does. It stands between the controllers, which create pods, and the kubelets, which run the
// pods that are bound to their nodes.
//
// One pod at a time goes through a scheduling cycle, in this order:
//
//   - The queue (queue.go) returns the next pod. Unschedulable pods wait there for an event that may help, by the hints of the plugins that refused
//     them; the informers' handlers (handlers.go) deliver such events.
//   - The cluster (cluster.go) gives a snapshot: all nodes with the pods on them, including assumed ones.
//   - The cycle (cycle.go, score.go) runs the plugins of package scheduling: which nodes can take the pod and how good each is, and picks one. Results
//     about a node are cached for pods of the same shape until the node changes (resultcache.go).
//   - If a node is found, the pod is assumed to be there, so that the next pod sees it, and bound in the background (attempt.go). What plugins reserve
//     for it, volumes and devices (reservation.go, bindvolumes.go, bindclaims.go), is assumed too (storage.go, devices.go), and written before it is
//     bound: a pod may wait for its volumes for minutes, while others are scheduled. If any of that fails, the pod is forgotten and requeued.
//   - If there is none, preemption looks for pods of lower priority to evict (preempt.go, evict.go), and why there is none is written in an Event
//     (recorder.go) and in the pod's status (status.go), neither of which blocks the next cycle.
//
// Every decision goes into the pod's journey, with the plugin that refused each node or the scores it got (verdicts.go).
//
// Package scheduling holds the plugins; the configuration (config.go) chooses among them. The scheduler needs no other rights than those of
// system:kube-scheduler.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package scheduler
