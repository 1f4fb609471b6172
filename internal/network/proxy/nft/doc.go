// Package nft serves Services with nftables, through netlink. All of it is one table, skiff-proxy, for both address families.
//
// There is no chain per Service. What is addressed, a frontend, is an element in the map "services", which says what chain to go to. That chain is
// the same for all that have as many endpoints: it takes a number at random below that and looks up where to in the map "endpoints".
//
//	services4:   10.43.0.10 . udp . 53 : goto lb4-2
//	endpoints4:  10.43.0.10 . udp . 53 . 0 : 10.42.0.7 . 53,  10.43.0.10 . udp . 53 . 1 : 10.42.1.9 . 53
//	lb4-2:       dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map @endpoints4
//
// Node ports are the same in maps whose keys have no address. So a change of an endpoint is a change of a few elements, whatever the number of
// Services, and everything from nothing is a few messages full of elements. Only a Port with session affinity has chains of its own (stay_linux.go).
// Each Sync is one transaction: packets see all of it or nothing.
//
// Rules are such that nft can show them: a lookup with what another lookup gave would do with fewer elements, but nft 1.0 ends with a failed assertion
// when it sees one.
package nft
