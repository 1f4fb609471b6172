package cluster

import (
	"skiff/internal/kubelet"
	"skiff/internal/kubelet/cgroup"
	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/stats"
)

// stats measures the node: the whole machine, and the pods in their groups.
func (n *node) stats(k *kubelet.Kubelet, runtime cri.Runtime, groups *cgroup.Manager) (*stats.Provider, error) {
	machine, err := cgroup.New(cgroup.Options{})
	if err != nil {
		return nil, err
	}
	return stats.New(stats.Options{NodeName: n.name, Runtime: runtime, Cgroups: machineGroups{groups, machine}, Volumes: k, Pods: k,
		RootDir: n.place.kubelet, LogDir: n.place.podLogs, Log: n.o.Log}), nil
}

// machineGroups are the groups of pods, which are the cluster's, and of the machine, which is everybody's.
type machineGroups struct {
	*cgroup.Manager
	machine *cgroup.Manager
}

func (g machineGroups) NodeUsage() (cgroup.Usage, error) { return g.machine.NodeUsage() }
