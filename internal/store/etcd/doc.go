// Package etcd keeps a store.Store in etcd: inside this process (Embed), or in a cluster elsewhere (Dial).
//
// Both share the translation of the contract into changes (store.go, change.go), of errors (errors.go), the leases behind TTLs
// (lease.go) and the delivery of watches (watch.go). What differs is behind the interface engine: embedded.go reads etcd's
// multi-version database in process, with no gRPC and no socket between; external.go speaks gRPC.
//
// Who makes changes durable and applies them to the embedded database is behind the interface member. It is alone: what is
// applied here is committed, so a local read is linearizable. As a rule it is a lone member (lone.go) with a log of changes
// (changelog.go); with `Listen`, which opens it to etcdctl, it is etcd's own server (server.go) with Raft's log. A directory
// goes from one to the other (convert.go).
//
// It knows nothing of Kubernetes, except that the compaction key of package store is the one Kubernetes uses.
package etcd
