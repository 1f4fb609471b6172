// Package metrics declares the resource metrics API, metrics.k8s.io: what nodes and the containers of pods use now. Its objects are never stored: the API
// server measures them when somebody asks. Everything a client sees is as metrics-server has it.
//
// It is not one of kube-apiserver's own groups, so that it is not in the package all: a server can leave it to another one, such as metrics-server.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package metrics
