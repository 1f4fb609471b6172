// Package replicaset keeps as many pods of a template running as a ReplicaSet, or a ReplicationController, asks for. The two differ only in
// where they are stored, so one implementation serves both: set is what it sees of either.
//
// A look first settles which pods belong to the set (adopting strays that it selects, letting go of those it no longer selects), then
// creates what is missing or deletes what is too much, and last reports what it saw in the set's status. All of it is decided in decide.go.
package replicaset
