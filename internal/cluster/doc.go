// Package cluster puts skiff together. Start opens the store, starts the API server on it and the components beside it; StartAgent starts a node that joins a
// server elsewhere; RunControllers, RunScheduler and RunProxy run one component in a process of its own. The command line parses flags into a Config,
// an AgentConfig, a Remote or a ProxyConfig, and calls this package.
//
// Its rooms:
//
//	cluster             the configuration and its checks; the server, the agent and the node, each assembled and stopped in order
//	cluster/check       whether a machine can run a node
//	cluster/components  the control loops, the scheduler and hollow nodes, made for the API server's process
//	cluster/datadir     a data directory that only its owner may change
//	cluster/join        how a machine joins: tokens, trust and the node's certificates
//	cluster/kubeconfig  writing kubeconfigs and editing the user's
//	cluster/local       nodes of namespaces on one machine
//	cluster/memory      GOGC by load
//	cluster/pki         the cluster's authorities and certificates
//	cluster/process     the skiff process of a data directory: its lock, its launch, its end and its log
//	cluster/tunnel      connections from the server to nodes that it cannot reach
//
// It must not import package cli, which calls it. It alone may import every other package.
package cluster
