// Package etcd keeps a store.Store in etcd: inside this process (Embed), or in an external cluster (Dial).
//
// Both share the translation of the contract into changes (store.go, change.go), of errors (errors.go), the leases behind TTLs
// (lease.go) and the delivery of watches (watch.go). What differs is behind the interface engine: embedded.go reads etcd's
// multi-version database in process, without gRPC or a socket; external.go speaks gRPC.
//
// The interface member makes changes durable and applies them to the embedded database. The member is the only one of its cluster: an
// applied change is committed, so a local read is linearizable. By default it is a singleMember (single.go) with a log of changes
// (changelog.go); with `Listen`, which opens it to etcdctl, it is etcd's own server (server.go) with Raft's log. convert.go converts a
// data directory from one to the other.
//
// It knows nothing of Kubernetes, except that the compaction key of package store is the one Kubernetes uses. It must not import any
// other package of skiff but the store.
package etcd
