// Package all lists every resource of the catalog, in the order in which discovery shows groups. To serve a new group, add its
// package here. The API server, and every tool that needs all resources, takes them from here.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package all
