package scheduling

// nodeName allows only the node that the pod names, if it names one.
type nodeName struct{ refused *Status }

func newNodeName() *nodeName {
	return &nodeName{refuse(NodeName, UnschedulableAndUnresolvable, "node(s) didn't match the requested node name")}
}

func (*nodeName) Name() string { return NodeName }

func (*nodeName) EventsToRegister() []EventWithHint {
	return []EventWithHint{{Kind: NodeKind, Actions: Add}}
}

func (p *nodeName) PreFilter(pod *Pod, _ *Snapshot) PreFilterResult {
	if pod.Spec.NodeName == "" {
		return PreFilterResult{}
	}
	return PreFilterResult{Nodes: []string{pod.Spec.NodeName}, Check: checkFunc(func(n *Node) *Status {
		if n.Name != pod.Spec.NodeName {
			return p.refused
		}
		return nil
	})}
}
