// Package authentication declares the reviews of authentication.k8s.io: who the caller is, and whose token a token is. The
// server answers them and never stores them.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package authentication
