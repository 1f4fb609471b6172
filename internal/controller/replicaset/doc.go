// Package replicaset keeps as many pods of a template running as a ReplicaSet or a ReplicationController asks for. The two differ only in
// where they are stored, so one implementation serves both: set is its view of either.
//
// A reconcile first settles which pods belong to the set (adopting orphans that it selects, releasing pods that it no longer selects), then
// creates missing pods or deletes excess ones, and last updates the set's status. All of it is decided in decide.go.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package replicaset
