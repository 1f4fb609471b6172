package scheduling

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	schedv1 "k8s.io/kube-scheduler/config/v1"
)

// nodeAffinity allows nodes that match the pod's node selector and required node affinity, and favours those that match its preferred one. The
// configuration may add affinity for every pod.
type nodeAffinity struct {
	added     *nodeaffinity.NodeSelector
	preferred *nodeaffinity.PreferredSchedulingTerms

	refused, enforced, conflict *Status
}

func newNodeAffinity(args *schedv1.NodeAffinityArgs) (*nodeAffinity, error) {
	p := &nodeAffinity{
		refused:  refuse(NodeAffinity, UnschedulableAndUnresolvable, "node(s) didn't match Pod's node affinity/selector"),
		enforced: refuse(NodeAffinity, UnschedulableAndUnresolvable, "node(s) didn't match scheduler-enforced node affinity"),
		conflict: refuse(NodeAffinity, UnschedulableAndUnresolvable, "pod affinity terms conflict"),
	}
	added := args.AddedAffinity
	if added == nil {
		return p, nil
	}
	var err error
	if required := added.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		if p.added, err = nodeaffinity.NewNodeSelector(required); err != nil {
			return nil, fmt.Errorf("parsing addedAffinity.requiredDuringSchedulingIgnoredDuringExecution: %w", err)
		}
	}
	if preferred := added.PreferredDuringSchedulingIgnoredDuringExecution; len(preferred) != 0 {
		if p.preferred, err = nodeaffinity.NewPreferredSchedulingTerms(preferred); err != nil {
			return nil, fmt.Errorf("parsing addedAffinity.preferredDuringSchedulingIgnoredDuringExecution: %w", err)
		}
	}
	return p, nil
}

func (*nodeAffinity) Name() string { return NodeAffinity }

func (p *nodeAffinity) EventsToRegister() []EventWithHint {
	return []EventWithHint{{NodeKind, Add | UpdateNodeLabel, func(pod *Pod, e Event) bool {
		if p.added != nil && !p.added.Match(e.NewNode) {
			return false
		}
		if pod.nodeAffinity == nil {
			return e.OldNode == nil
		}
		matches, err := pod.nodeAffinity.Match(e.NewNode)
		if !matches || e.OldNode == nil {
			return matches || err != nil
		}
		matched, err := pod.nodeAffinity.Match(e.OldNode)
		return !matched || err != nil
	}}}
}

func (p *nodeAffinity) PreFilter(pod *Pod, _ *Snapshot) PreFilterResult {
	if pod.nodeAffinity == nil && p.added == nil {
		return PreFilterResult{}
	}
	names, limited := nodesByName(pod)
	if limited && len(names) == 0 {
		return PreFilterResult{Status: p.conflict}
	}
	return PreFilterResult{Nodes: names, Check: checkFunc(func(n *Node) *Status {
		if p.added != nil && !p.added.Match(n.Node) {
			return p.enforced
		}
		if !pod.matchesNode(n.Node) {
			return p.refused
		}
		return nil
	})}
}

// matchesNode reports whether the pod's node selector and required node affinity match the node. Terms that cannot be parsed match nothing.
func (p *Pod) matchesNode(n *corev1.Node) bool {
	if p.nodeAffinity == nil {
		return true
	}
	ok, _ := p.nodeAffinity.Match(n)
	return ok
}

// nodesByName returns the node names that required node affinity is limited to, if every term names nodes, as those of DaemonSet pods do.
func nodesByName(pod *Pod) (names []string, limited bool) {
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil, false
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		var named []string
		found := false
		for _, r := range term.MatchFields {
			if r.Key != metav1.ObjectNameField || r.Operator != corev1.NodeSelectorOpIn {
				continue
			}
			if found {
				named = slices.DeleteFunc(named, func(name string) bool { return !slices.Contains(r.Values, name) })
			} else {
				named, found = slices.Clone(r.Values), true
			}
		}
		if !found {
			return nil, false
		}
		for _, name := range named {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		limited = true
	}
	return names, limited
}

func (p *nodeAffinity) PreScore(pod *Pod, _ *Snapshot, _ []*Node) (Scorer, *Status) {
	if pod.preferredNodesErr != nil {
		return nil, failure(NodeAffinity, pod.preferredNodesErr)
	}
	if pod.preferredNodes == nil && p.preferred == nil {
		return nil, nil
	}
	return &nodeAffinityScorer{pod.preferredNodes, p.preferred}, nil
}

// nodeAffinityScorer sums the weights of the preferred terms that match.
type nodeAffinityScorer struct {
	pod, added *nodeaffinity.PreferredSchedulingTerms
}

func (s *nodeAffinityScorer) Local() bool { return true }

func (s *nodeAffinityScorer) Score(nodes []*Node, scores []int64) {
	for i, n := range nodes {
		scores[i] = 0
		if s.added != nil {
			scores[i] += s.added.Score(n.Node)
		}
		if s.pod != nil {
			scores[i] += s.pod.Score(n.Node)
		}
	}
}

func (s *nodeAffinityScorer) Normalize(_ []*Node, scores []int64) { normalize(scores, false) }
