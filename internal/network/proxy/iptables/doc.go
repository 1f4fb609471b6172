// Package iptables serves Services with iptables rules, in the chains that operators know from kube-proxy. It writes text to the program iptables-restore
// and for IPv6 to ip6tables-restore, which are on the PATH; either variant of them will do, that of nftables and the legacy one.
//
// What a packet passes, in the table nat:
//
//	PREROUTING, OUTPUT → KUBE-SERVICES      one rule for each address and port
//	  cluster IP       → KUBE-SVC-…         one rule for each endpoint, taken at random (module statistic)
//	                     KUBE-SVL-…         the same with the endpoints on this node only, where there is a traffic policy
//	  external address → KUBE-EXT-…         marks for masquerading, or tells pods and this node from clients elsewhere; then as above
//	  fenced address   → KUBE-FW-…          only clients in the source ranges get on to KUBE-EXT-…
//	  node's address   → KUBE-NODEPORTS     one rule for each node port, to KUBE-EXT-…
//	KUBE-SVC-…         → KUBE-SEP-…         an endpoint: DNAT
//	POSTROUTING        → KUBE-POSTROUTING   masquerades what KUBE-MARK-MASQ marked
//
// What was not sent on there is refused or dropped in the table filter, by KUBE-SERVICES (cluster IPs), KUBE-EXTERNAL-SERVICES, KUBE-NODEPORTS and
// KUBE-PROXY-FIREWALL. KUBE-FORWARD lets pass what belongs to connections that were.
//
// A Sync is one run of each program, and of that one only whose family has changes. Chains of Services and endpoints that did not change are not
// written; those with a rule for each Service are written anew if a rule in them changes. A table comes into effect as a whole, nat before filter.
// Nothing but our own chains and the jumps to them is ever written or removed.
//
// Session affinity is the module recent, which remembers 100 clients of each endpoint unless the kernel is told otherwise (ip_list_tot). On a
// kernel that lacks it New says so in the log, and Services with affinity are balanced without.
package iptables
