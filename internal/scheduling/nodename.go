package scheduling

// nodeName lets a pod that names a node run there alone.
type nodeName struct{ refused *Status }

func newNodeName() *nodeName {
	return &nodeName{refuse(NodeName, UnschedulableAndUnresolvable, "node(s) didn't match the requested node name")}
}

func (*nodeName) Name() string { return NodeName }

func (*nodeName) Interests() []Interest { return []Interest{{Kind: NodeKind, Actions: Add}} }

func (p *nodeName) PrepareFilter(pod *Pod, _ *Snapshot) Prepared {
	if pod.Spec.NodeName == "" {
		return Prepared{}
	}
	return Prepared{Nodes: []string{pod.Spec.NodeName}, Check: checkFunc(func(n *Node) *Status {
		if n.Name != pod.Spec.NodeName {
			return p.refused
		}
		return nil
	})}
}
