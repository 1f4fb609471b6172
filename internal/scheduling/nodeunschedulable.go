package scheduling

import corev1 "k8s.io/api/core/v1"

// nodeUnschedulable keeps pods off cordoned nodes.
type nodeUnschedulable struct{ refused *Status }

func newNodeUnschedulable() *nodeUnschedulable {
	return &nodeUnschedulable{refuse(NodeUnschedulable, UnschedulableAndUnresolvable, "node(s) were unschedulable")}
}

func (*nodeUnschedulable) Name() string { return NodeUnschedulable }

func (*nodeUnschedulable) Interests() []Interest {
	return []Interest{
		{NodeKind, Add | UpdateNodeTaint, func(_ *Pod, e Event) bool {
			return !e.NewNode.Spec.Unschedulable && (e.OldNode == nil || e.OldNode.Spec.Unschedulable)
		}},
		{TargetPod, UpdatePodToleration, func(_ *Pod, e Event) bool { return toleratesUnschedulable(e.NewPod) }},
	}
}

func (p *nodeUnschedulable) PrepareFilter(pod *Pod, s *Snapshot) Prepared {
	if s.sums.unschedulable == 0 || toleratesUnschedulable(pod) {
		return Prepared{}
	}
	return Prepared{Check: checkFunc(func(n *Node) *Status {
		if n.Spec.Unschedulable {
			return p.refused
		}
		return nil
	})}
}

// toleratesUnschedulable reports whether the pod tolerates the taint that comes with a cordon.
func toleratesUnschedulable(pod *Pod) bool {
	return tolerates(pod.Spec.Tolerations, &corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
}
