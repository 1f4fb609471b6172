// Package podnet is the network of the pods of one node: what CNI is configured with, forwarding, masquerading of what leaves the pods'
// ranges, and host ports.
//
// By default every pod has a link of its own to the node, which routes (ptp and host-local), so that everything passes the node's
// netfilter hooks and none of it depends on bridges calling them. Whoever puts a configuration of their own into the directory gets that
// instead: its name need only come before ours.
//
// Rules are in nftables tables of our own, written through netlink, each whole and in one transaction; nobody else's are touched, and
// neither nft nor iptables is run. The kernel keeps them while skiff is away.
package podnet
