// Package address checks the IP addresses and CIDR blocks of API objects: services, endpoints, endpoint slices, nodes. These
// fields are older than Kubernetes' strict rules, so a value that an object already holds stays valid.
//
// Packages of the catalog call it when they validate a request.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package address
