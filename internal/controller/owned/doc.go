// Package owned is shared by the loops of workloads: it finds the objects that an owner controls, adopts orphans that its selector matches,
// releases objects that it no longer matches, and names its pods. It reads the informers' caches and returns actions; it never writes.
//
// It must not import the API server, its store or its cache, or another component.
package owned
