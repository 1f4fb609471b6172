// Package local makes nodes on this machine with no container engine and no VM: `skiff up --nodes 3`.
//
// A local node is a machine made of namespaces: network, mounts, processes, host name, IPC and control groups. Inside runs what a real machine runs, by
// the same program: on node 1 `skiff server`, on the others `skiff agent`. They cannot tell, and find everything where it is on a machine:
// /var/lib/skiff, /var/lib/kubelet, /etc/cni/net.d. This package is only the launcher; the other one is cluster.Launch, for the machine itself.
//
// The first process of a node is one that does nothing but reap: pause, which comes along for pods. Everything else enters by setns. So skiff and
// containerd may end and be started again while pods run, and when the first process ends, the kernel ends all others, as when power fails.
//
// Nodes are connected by a bridge in a network namespace of its own, the underlay, with a port for each node and one for the machine itself, which is the
// gateway. A partition is an nftables rule there. That namespace has no process; a mount keeps it:
//
//	<data-dir>                       is /var/lib/skiff of node 1, so that commands find images, kubeconfigs and the store where they always are
//	<data-dir>/nodes.json            the layout: which nodes there are and what their addresses are
//	<data-dir>/program               skiff and the first process, as the nodes have them: /opt/skiff
//	<data-dir>/nodes/<node>/root     the node's disk: /var, /etc, /opt, ...
//	/run/skiff/<id>.net              the underlay
//
// and, with names made of the data directory's id, so that leftovers of a cluster can be recognised:
//
//	skiff-<id>                       the machine's port, an interface; and the nftables table that masquerades what nodes send to elsewhere
//	/skiff/<id>/<node>               control groups, in every hierarchy
//
// There is no file that says what runs: the kernel is asked, so the answer is never out of date. Whichever process is killed at whatever moment, the next command
// continues from what there is.
//
// It must not import the API server, its store or its cache: what runs in a node is the skiff program. Of the components it uses only what makes links and
// nftables tables (network/podnet, network/nfttable).
package local
