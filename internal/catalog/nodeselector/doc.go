// Package nodeselector validates node selectors: terms over the labels and fields of nodes, with which pods, persistent volumes
// and resource slices select nodes.
//
// Packages of the catalog call it when they validate a request.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package nodeselector
