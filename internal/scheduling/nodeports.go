package scheduling

// nodePorts keeps a pod off nodes where the host ports it wants are taken.
type nodePorts struct{ refused *Status }

func newNodePorts() *nodePorts {
	return &nodePorts{refuse(NodePorts, Unschedulable, "node(s) didn't have free ports for the requested pod ports")}
}

func (*nodePorts) Name() string { return NodePorts }

func (*nodePorts) Interests() []Interest {
	return []Interest{
		{AssignedPod, Delete, func(pod *Pod, e Event) bool {
			return e.OldPod.placed() && portsConflict(pod.HostPorts, e.OldPod.HostPorts)
		}},
		{NodeKind, Add, nil},
	}
}

func (p *nodePorts) PrepareFilter(pod *Pod, _ *Snapshot) Prepared {
	if len(pod.HostPorts) == 0 {
		return Prepared{}
	}
	return Prepared{Check: checkFunc(func(n *Node) *Status {
		if portsConflict(pod.HostPorts, n.UsedPorts) {
			return p.refused
		}
		return nil
	})}
}

func portsConflict(wanted, used []HostPort) bool {
	for _, w := range wanted {
		for _, u := range used {
			if w.Conflicts(u) {
				return true
			}
		}
	}
	return false
}
