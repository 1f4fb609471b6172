// Package networktest creates network namespaces for tests with real packets: namespaces, veth pairs, addresses, routes and servers in them.
// The packet suites of dns, overlay, podnet and proxy use it. It is empty on systems other than Linux.
//
// It must not import other packages of skiff: the packages that it tests use it.
package networktest
