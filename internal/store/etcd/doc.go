// Package etcd keeps a store.Store in etcd: one member inside this process (Embed), or a cluster elsewhere (Dial).
//
// Both share the translation of the contract into etcd's transactions (store.go), of its errors (errors.go), the
// leases behind TTLs (lease.go) and the delivery of watches (watch.go). What differs is behind the interface
// engine: embedded.go calls the server's methods and its multi-version store in process, with no gRPC and no socket
// between; external.go speaks gRPC.
//
// The embedded member is alone: what is applied here is committed, so a local read is linearizable, and it need not
// wait for anybody to lead. `Listen` opens it to etcdctl.
//
// It knows nothing of Kubernetes, except that the compaction key of package store is the one Kubernetes uses.
package etcd
