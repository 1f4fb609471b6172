// Package nft is the nftables mode of the service proxy. It programs one table, skiff-proxy, for both address families, through netlink.
//
// There is no chain per Service. A frontend, the address and port that clients connect to, is an element in the map "services", whose value is a
// chain. All frontends with the same number of endpoints share a chain: it draws a random number below that and looks the endpoint up in the
// map "endpoints".
//
//	services4:   10.43.0.10 . udp . 53 : goto lb4-2
//	endpoints4:  10.43.0.10 . udp . 53 . 0 : 10.42.0.7 . 53,  10.43.0.10 . udp . 53 . 1 : 10.42.1.9 . 53
//	lb4-2:       dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map @endpoints4
//
// Node ports are the same in maps whose keys have no address. So a change of an endpoint is a change of a few elements, whatever the number of
// Services, and a full sync is a few messages full of elements. Only a Port with session affinity has chains of its own (affinity_linux.go).
// Each Sync is one transaction: packets see all of it or nothing.
//
// The rules can be listed with nft: a lookup with the result of another lookup would need fewer elements, but nft 1.0 fails with an assertion
// when it lists one.
//
// It must not import the API server, its store or its cache, nor another component: components meet only at the API, through client.
package nft
