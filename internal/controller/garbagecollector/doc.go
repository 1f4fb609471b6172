// Package garbagecollector deletes objects whose owners are gone. metadata.ownerReferences form a graph of all objects in a cluster, whatever
// their kinds; when the last owner of an object is deleted, the object follows:
//
//   - background: an owner is deleted, then its dependents;
//   - foreground: an owner with the finalizer foregroundDeletion waits until the dependents that block its deletion are gone;
//   - orphan: an owner with the finalizer orphan is deleted after it has been removed from its dependents' owner references.
//
// The collector monitors the metadata of every resource that can be deleted (collector.go), a new one a second after its definition has changed, and keeps of each object only what it needs
// (graph.go). What to do about an object is decided from the graph alone (decide.go) and carried out with preconditions that fail if the
// object has changed meanwhile (act.go). An owner that was never observed is not assumed to be absent: the API server is asked.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package garbagecollector
