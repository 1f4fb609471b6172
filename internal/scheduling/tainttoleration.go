package scheduling

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// taintToleration refuses nodes with taints that the pod does not tolerate, and scores those with PreferNoSchedule taints lower.
type taintToleration struct{ refused *Status }

func newTaintToleration() *taintToleration {
	return &taintToleration{refuse(TaintToleration, UnschedulableAndUnresolvable, "node(s) had untolerated taint(s)")}
}

func (*taintToleration) Name() string { return TaintToleration }

func (*taintToleration) EventsToRegister() []EventWithHint {
	return []EventWithHint{
		{NodeKind, Add | UpdateNodeTaint, func(pod *Pod, e Event) bool {
			return (e.OldNode == nil || untolerated(e.OldNode.Spec.Taints, pod.Spec.Tolerations)) && !untolerated(e.NewNode.Spec.Taints, pod.Spec.Tolerations)
		}},
		{TargetPod, UpdatePodToleration, nil},
	}
}

func (p *taintToleration) PreFilter(pod *Pod, s *Snapshot) PreFilterResult {
	if s.sums.tainted == 0 {
		return PreFilterResult{}
	}
	return PreFilterResult{Check: checkFunc(func(n *Node) *Status {
		if untolerated(n.Spec.Taints, pod.Spec.Tolerations) {
			return p.refused
		}
		return nil
	})}
}

func (p *taintToleration) PreScore(pod *Pod, s *Snapshot, _ []*Node) (Scorer, *Status) {
	scorer := &taintScorer{}
	if s.sums.softTainted > 0 {
		scorer.count = func(n *Node) int64 { return intolerable(n.Spec.Taints, pod.Spec.Tolerations) }
	}
	return scorer, nil
}

// taintScorer counts PreferNoSchedule taints that are not tolerated: the fewer the better.
type taintScorer struct {
	count func(*Node) int64 // nil: there are none
}

func (t *taintScorer) Local() bool { return true }

func (t *taintScorer) Score(nodes []*Node, scores []int64) {
	clear(scores)
	if t.count == nil {
		return
	}
	for i, n := range nodes {
		scores[i] = t.count(n)
	}
}

func (t *taintScorer) Normalize(_ []*Node, scores []int64) { normalize(scores, true) }

func intolerable(taints []corev1.Taint, tolerations []corev1.Toleration) int64 {
	var count int64
	for i := range taints {
		if taints[i].Effect == corev1.TaintEffectPreferNoSchedule && !tolerates(tolerations, &taints[i]) {
			count++
		}
	}
	return count
}

// untolerated reports whether there is a NoSchedule or NoExecute taint that is not tolerated.
func untolerated(taints []corev1.Taint, tolerations []corev1.Toleration) bool {
	for i := range taints {
		if isHard(taints[i].Effect) && !tolerates(tolerations, &taints[i]) {
			return true
		}
	}
	return false
}

// isHard reports whether a taint of this effect keeps new pods off a node.
func isHard(e corev1.TaintEffect) bool {
	return e == corev1.TaintEffectNoSchedule || e == corev1.TaintEffectNoExecute
}

func tolerates(tolerations []corev1.Toleration, taint *corev1.Taint) bool {
	for i := range tolerations {
		// The operators Lt and Gt are an alpha feature that is off.
		if tolerations[i].ToleratesTaint(klog.Logger{}, taint, false) {
			return true
		}
	}
	return false
}
