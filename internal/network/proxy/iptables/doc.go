// Package iptables is the iptables mode of the service proxy. It writes rules in the chains that operators know from kube-proxy, through the
// programs iptables-restore and, for IPv6, ip6tables-restore, which must be on the PATH, in the nftables or in the legacy variant.
//
// A packet passes these chains of the table nat:
//
//	PREROUTING, OUTPUT → KUBE-SERVICES      one rule for each address and port
//	  cluster IP       → KUBE-SVC-…         one rule for each endpoint, taken at random (module statistic)
//	                     KUBE-SVL-…         the same with the endpoints on this node only, where there is a traffic policy
//	  external address → KUBE-EXT-…         marks for masquerading, or tells pods and this node from clients outside; then as above
//	  with ranges      → KUBE-FW-…          only clients in the source ranges get to KUBE-EXT-…
//	  node's address   → KUBE-NODEPORTS     one rule for each node port, to KUBE-EXT-…
//	KUBE-SVC-…         → KUBE-SEP-…         an endpoint: DNAT
//	POSTROUTING        → KUBE-POSTROUTING   masquerades what KUBE-MARK-MASQ marked
//
// Traffic that is not forwarded is rejected or dropped in the table filter, by KUBE-SERVICES (cluster IPs), KUBE-EXTERNAL-SERVICES,
// KUBE-NODEPORTS and KUBE-PROXY-FIREWALL. KUBE-FORWARD accepts the packets of forwarded connections.
//
// A Sync is one run of the program of each family that has changes. Chains of Services and endpoints that did not change are not written; those
// with a rule for each Service are written again if a rule in them changes. A table comes into effect as a whole, nat before filter. Only the
// mode's own chains and the jumps to them are ever written or removed.
//
// Session affinity uses the module recent, which remembers 100 clients of each endpoint unless the kernel is configured otherwise (ip_list_tot).
// On a kernel without it New logs a warning, and Services with affinity are balanced without it.
//
// It must not import the API server, its store or its cache, nor another component: components meet only at the API, through client.
package iptables
