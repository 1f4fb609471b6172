// Package store is the only place where the cluster's state is kept: bytes under keys, each write a
// revision. It knows nothing of Kubernetes.
//
// The contract is in store.go. Two engines keep it: store/etcd (embedded in the process, or an external
// cluster) and store/memory (tests, and the model that etcd is tested against). store/storetest is the one
// suite that both run.
//
// In the journey of a request the store is the last stop of a write and the source of every watch event.
// Only the API server, its cache and cluster may import this package. It must not import any other package of skiff, nor
// Kubernetes' packages (except k8s.io/utils/clock).
package store
