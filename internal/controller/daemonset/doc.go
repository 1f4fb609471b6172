// Package daemonset runs a pod of a template on every node that it may run on. The scheduler binds these pods like all others, but each is
// created for one node, which its node affinity names.
//
// A reconcile first brings the ControllerRevisions of the template in order (history.go), then decides about every node (nodes.go), then, if
// that leaves nothing to do, about pods of an old template (rolling.go), and updates the status (status.go). Package scheduling decides which
// nodes a pod may run on, as for the scheduler.
//
// It must not import the API server, its store or its cache, or another component such as the scheduler: components meet only at the API.
package daemonset
