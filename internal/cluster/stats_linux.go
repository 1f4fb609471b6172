package cluster

import (
	"skiff/internal/kubelet"
	"skiff/internal/kubelet/cgroup"
	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/stats"
)

// stats returns the provider of /stats/summary, which measures the machine and the pods' cgroups.
func (n *node) stats(k *kubelet.Kubelet, runtime cri.Runtime, groups *cgroup.Manager) (*stats.Provider, error) {
	machine, err := cgroup.New(cgroup.Options{})
	if err != nil {
		return nil, err
	}
	return stats.New(stats.Options{NodeName: n.name, Runtime: runtime, Cgroups: statsCgroups{groups, machine}, Volumes: k, Pods: k,
		RootDir: n.paths.kubelet, LogDir: n.paths.podLogs, Log: n.options.Log}), nil
}

// statsCgroups measures pods below the cluster's cgroup, and the node by the root cgroup of the machine.
type statsCgroups struct {
	*cgroup.Manager
	machine *cgroup.Manager
}

// NodeUsage returns the usage of the whole machine.
func (g statsCgroups) NodeUsage() (cgroup.Usage, error) { return g.machine.NodeUsage() }
