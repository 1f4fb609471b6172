// Package podnet is the network of the pods of one node: what CNI is configured with, forwarding, masquerading of what leaves the pods'
// ranges, and host ports.
//
// By default every pod has a link of its own to the node, which routes, so that everything passes the node's netfilter hooks and none of it depends
// on bridges calling them. Server makes and removes these links, through netlink, when the runtime's CNI asks for it: by a plugin that only passes
// calls on to a socket (internal/bundle/build/skiff-cni.c). With a runtime that is not ours, CNI's own ptp and host-local make the same. Whoever puts
// a configuration of their own into the directory gets that instead: its name need only come before ours.
//
// Rules are in nftables tables of our own, written through netlink, each whole and in one transaction; nobody else's are touched, and
// neither nft nor iptables is run. The kernel keeps them while skiff is away, and links too.
package podnet
