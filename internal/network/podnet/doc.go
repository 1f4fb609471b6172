// Package podnet is the pod network of one node: the CNI configuration, the links of pods, IP forwarding, masquerading of traffic that leaves
// the pod CIDRs, and host ports. A pod gets its network from here when the runtime creates its sandbox.
//
// By default every pod has a veth link of its own to the node, which routes, so that all traffic passes the node's netfilter hooks without
// depending on bridges calling them. Server creates and removes these links, through netlink, when the runtime calls the CNI plugin "skiff",
// which only passes calls on to a socket (internal/bundle/build/skiff-cni.c). With a runtime that skiff does not bring along, CNI's own ptp and
// host-local create the same. A user's own CNI configuration in the directory is used instead if its file name sorts before skiff's.
//
// Rules are in nftables tables of skiff's own, written through netlink, each as a whole in one transaction. No other tables are changed, and
// neither nft nor iptables is run. The kernel keeps rules and links while skiff is stopped.
//
// It must not import the API server, its store or its cache, nor another component: components meet only at the API, through client.
package podnet
