// Package service gives services their cluster IPs and node ports, so that no two have the same, whatever the number of requests
// and of API servers at work on one store.
//
// A cluster IP is taken by creating the IPAddress object of that name: the store lets only one creation succeed. Node ports are bits
// in one object, /registry/ranges/servicenodeports, changed by compare-and-swap. Both are taken before the service is validated and
// written, and given back if that fails; a process that dies in between leaves something behind, which Repair finds. Wherever the two
// ways of failing can be chosen between, an address is lost for a while rather than given out twice.
//
// What a service needs is decided in catalog/core; this package only hands it out. It knows nothing of HTTP.
package service
