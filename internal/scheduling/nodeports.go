package scheduling

// nodePorts refuses nodes where the host ports of the pod are in use.
type nodePorts struct{ refused *Status }

func newNodePorts() *nodePorts {
	return &nodePorts{refuse(NodePorts, Unschedulable, "node(s) didn't have free ports for the requested pod ports")}
}

func (*nodePorts) Name() string { return NodePorts }

func (*nodePorts) EventsToRegister() []EventWithHint {
	return []EventWithHint{
		{AssignedPod, Delete, func(pod *Pod, e Event) bool {
			return e.OldPod.placed() && portsConflict(pod.HostPorts, e.OldPod.HostPorts)
		}},
		{NodeKind, Add, nil},
	}
}

func (p *nodePorts) PreFilter(pod *Pod, _ *Snapshot) PreFilterResult {
	if len(pod.HostPorts) == 0 {
		return PreFilterResult{}
	}
	return PreFilterResult{Check: checkFunc(func(n *Node) *Status {
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
