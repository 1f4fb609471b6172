// Package garbagecollector deletes what its owners have left behind. metadata.ownerReferences make a graph of all objects in a cluster,
// whatever their kinds; when the last owner of an object is gone, the object follows:
//
//   - in the background: an owner is deleted, then what depended on it;
//   - in the foreground: an owner with the finalizer foregroundDeletion waits until the dependents that block its deletion are gone;
//   - orphaning: an owner with the finalizer orphan goes after its dependents have been told to forget it.
//
// The collector follows the metadata of every resource that can be deleted (collector.go) and keeps of each object only what counts (graph.go). What
// to do about an object is decided from the graph alone (decide.go) and carried out under conditions that make the decision void if the
// object has changed meanwhile (act.go). An owner that has never been seen is not believed to be gone: the server is asked.
package garbagecollector
