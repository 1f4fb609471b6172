// Package memory keeps a store.Store in memory, with its history, for tests and as the model that the etcd engine is
// compared with. Nothing survives the process except through Snapshot and Restore.
//
// Every change is kept in one log, in order, until it is compacted. A watch is a cursor into that log: a slow
// reader costs nothing and breaks only when compaction passes it.
//
// It knows nothing of Kubernetes. It must not import any other package of skiff but the store.
package memory
