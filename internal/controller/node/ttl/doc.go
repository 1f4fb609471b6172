// Package ttl is the ttl-controller: an annotation of each node tells its kubelet how long it may cache Secrets and ConfigMaps. The more nodes
// there are, the longer, lest kubelets overwhelm the API server.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package ttl
