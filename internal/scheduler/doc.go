// Package scheduler puts pods on nodes, as kube-scheduler does. It stands between the controllers, which create pods, and the kubelets, which
// run what is bound to their nodes.
//
// One pod at a time goes through a cycle, in this order:
//
//   - The queue (queue.go) says which pod is next. Pods that no node took wait there for a change that the plugins which refused them take for
//     a chance; the informers' handlers (handlers.go) bring such changes.
//   - The cluster (cluster.go) gives a snapshot: all nodes with the pods on them, those included that are on their way there.
//   - The cycle (cycle.go, score.go) asks the plugins of package scheduling which nodes can take the pod and how good each is, and picks one.
//     What it learns about a node it remembers for pods alike until the node changes (memory.go).
//   - If a node is found, the pod is assumed to be there, so that the next pod sees it, and bound behind the cycle's back (attempt.go). If that
//     fails the pod is taken off again and waits for another attempt.
//   - If there is none, it is looked for pods of lower priority that could go (preempt.go), which are then evicted (evict.go), and why there is
//     none is said in an event (recorder.go) and in the pod's status (status.go), neither of which holds up the next cycle.
//
// Every decision is kept for a while, with the plugin that refused each node or the scores it got (decisions.go).
//
// Which plugins there are and what they do is the business of package scheduling; how they are chosen, of the configuration (config.go). The
// scheduler knows the API only through package client, and needs no other rights than those of system:kube-scheduler.
package scheduler
