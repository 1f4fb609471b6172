// Package authorization declares the reviews of authorization.k8s.io: whether the caller or another user may do something, and
// what the caller may do in a namespace. The server answers them and never stores them.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package authorization
