package scheduling

import corev1 "k8s.io/api/core/v1"

// nodeUnschedulable refuses cordoned nodes.
type nodeUnschedulable struct{ refused *Status }

func newNodeUnschedulable() *nodeUnschedulable {
	return &nodeUnschedulable{refuse(NodeUnschedulable, UnschedulableAndUnresolvable, "node(s) were unschedulable")}
}

func (*nodeUnschedulable) Name() string { return NodeUnschedulable }

func (*nodeUnschedulable) EventsToRegister() []EventWithHint {
	return []EventWithHint{
		{NodeKind, Add | UpdateNodeTaint, func(_ *Pod, e Event) bool {
			return !e.NewNode.Spec.Unschedulable && (e.OldNode == nil || e.OldNode.Spec.Unschedulable)
		}},
		{TargetPod, UpdatePodToleration, func(_ *Pod, e Event) bool { return toleratesUnschedulable(e.NewPod) }},
	}
}

func (p *nodeUnschedulable) PreFilter(pod *Pod, s *Snapshot) PreFilterResult {
	if s.sums.unschedulable == 0 || toleratesUnschedulable(pod) {
		return PreFilterResult{}
	}
	return PreFilterResult{Check: checkFunc(func(n *Node) *Status {
		if n.Spec.Unschedulable {
			return p.refused
		}
		return nil
	})}
}

// toleratesUnschedulable reports whether the pod tolerates the taint of cordoned nodes.
func toleratesUnschedulable(pod *Pod) bool {
	return tolerates(pod.Spec.Tolerations, &corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
}
