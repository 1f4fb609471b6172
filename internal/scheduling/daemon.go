package scheduling

import (
	corev1 "k8s.io/api/core/v1"
)

// OnDaemonNode says how a DaemonSet's pod fares on a node, as far as the scheduler's rules go that hold for daemons. pod is made from the
// template, with the tolerations that every daemon gets.
//   - wanted: it should run there: node name, node selector, node affinity and taints let it;
//   - stays: if it is there already it may stay, as no NoExecute taint drives it away; else it is to be deleted.
func OnDaemonNode(pod *Pod, node *corev1.Node) (wanted, stays bool) {
	if pod.Spec.NodeName != "" && pod.Spec.NodeName != node.Name || !pod.matchesNode(node) {
		return false, false
	}
	wanted, stays = true, true
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if isHard(taint.Effect) && !tolerates(pod.Spec.Tolerations, taint) {
			wanted, stays = false, stays && taint.Effect != corev1.TaintEffectNoExecute
		}
	}
	return wanted, stays
}
