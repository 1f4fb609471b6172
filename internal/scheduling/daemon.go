package scheduling

import (
	corev1 "k8s.io/api/core/v1"
)

// OnDaemonNode applies the scheduler's rules for DaemonSet pods to a node. pod is made from the template, with the tolerations that every
// daemon pod gets.
//   - shouldRun: node name, node selector, node affinity and taints allow the pod there;
//   - mayStay: a pod that is there already may stay, as it tolerates the NoExecute taints; otherwise it is to be deleted.
func OnDaemonNode(pod *Pod, node *corev1.Node) (shouldRun, mayStay bool) {
	if pod.Spec.NodeName != "" && pod.Spec.NodeName != node.Name || !pod.matchesNode(node) {
		return false, false
	}
	shouldRun, mayStay = true, true
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if isHard(taint.Effect) && !tolerates(pod.Spec.Tolerations, taint) {
			shouldRun, mayStay = false, mayStay && taint.Effect != corev1.TaintEffectNoExecute
		}
	}
	return shouldRun, mayStay
}
