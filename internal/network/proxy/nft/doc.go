// Package nft serves Services with nftables, through netlink. All of it is one table, skiff-proxy, for both address families.
//
// There is no chain per Service. A Port has a pool of endpoints, or two if it has a traffic policy: a number, and elements in the map
// "endpoints" from pool and index to an address and port. What is addressed, a "frontend", is an element in each of two maps: "services" says which
// chain to go to, "pools" which pool it is about. The chain is the same for all that have as many endpoints: it takes a number at random below
// that and looks up where to:
//
//	services:   10.43.0.10 . udp . 53 : goto lb4-2          pools:  10.43.0.10 . udp . 53 : 0x5e
//	endpoints:  0x5e . 0 : 10.42.0.7 . 53,  0x5e . 1 : 10.42.1.9 . 53
//	lb4-2:      dnat to (pools[daddr . protocol . port]) . (numgen random mod 2) : endpoints
//
// Node ports are frontends at address zero. So a change of an endpoint is a change of a few elements, whatever the number of Services, and
// everything from nothing is a few messages of elements. Each Sync is one transaction: packets see all of it or nothing.
package nft
