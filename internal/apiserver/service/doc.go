// Package service allocates the cluster IPs and node ports of services, so that no two services have the same, with any number of
// concurrent requests and of API servers on one store.
//
// A cluster IP is allocated by creating the IPAddress object of that name: the store lets only one creation succeed. Node ports are bits in
// one object, /registry/ranges/servicenodeports, changed by compare-and-swap. Both are allocated before the service is validated and
// written, and released if that fails; a process that dies in between leaks an allocation, which Repair finds. Where one of two failures
// has to be chosen, an address is leaked for a while rather than allocated twice.
//
// What a service needs is decided in catalog/core; this package only allocates it.
//
// It must not import the API server's root package: the registry calls it through hooks.
package service
