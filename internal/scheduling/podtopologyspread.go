package scheduling

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	schedv1 "k8s.io/kube-scheduler/config/v1"
)

// podTopologySpread spreads the pods that a selector matches over zones, nodes or other domains: it refuses domains that have too many already, and
// favours those with few.
type podTopologySpread struct {
	defaults       []spreadConstraint // for pods without constraints
	systemDefaults bool

	missingLabel, skewed *Status
}

// systemSpread holds the constraints of workloads if neither their pods nor the configuration have any.
var systemSpread = []corev1.TopologySpreadConstraint{
	{TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, MaxSkew: 3},
	{TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway, MaxSkew: 5},
}

func newPodTopologySpread(args *schedv1.PodTopologySpreadArgs) *podTopologySpread {
	const reason = "node(s) didn't match pod topology spread constraints"
	p := &podTopologySpread{
		defaults:     parseSpread(args.DefaultConstraints, nil),
		missingLabel: refuse(PodTopologySpread, UnschedulableAndUnresolvable, reason+" (missing required label)"),
		skewed:       refuse(PodTopologySpread, Unschedulable, reason),
	}
	if args.DefaultingType == schedv1.SystemDefaulting {
		p.defaults, p.systemDefaults = parseSpread(systemSpread, nil), true
	}
	return p
}

func (*podTopologySpread) Name() string { return PodTopologySpread }

// spreadConstraint is a parsed topology spread constraint.
type spreadConstraint struct {
	when        corev1.UnsatisfiableConstraintAction
	maxSkew     int32
	topologyKey string
	selector    labels.Selector
	selectorKey string // equal for equal selectors
	minDomains  int
	// honorAffinity and honorTaints exclude nodes that the pod cannot go to by its node affinity, or by their taints.
	honorAffinity, honorTaints bool
	err                        error // why the selector could not be parsed
}

func parseSpread(in []corev1.TopologySpreadConstraint, pod labels.Set) []spreadConstraint {
	out := make([]spreadConstraint, 0, len(in))
	for _, c := range in {
		selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
		if err != nil {
			selector = labels.Nothing()
		}
		for _, key := range c.MatchLabelKeys {
			value, ok := pod[key]
			requirements, selectable := selector.Requirements()
			if !ok || !selectable {
				continue
			}
			selector = labels.SelectorFromSet(labels.Set{key: value}).Add(requirements...)
		}
		parsed := spreadConstraint{
			when: c.WhenUnsatisfiable, maxSkew: c.MaxSkew, topologyKey: c.TopologyKey, selector: selector, selectorKey: selectorKey(selector), minDomains: 1,
			honorAffinity: c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor,
			honorTaints:   c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor,
			err:           err,
		}
		if c.MinDomains != nil {
			parsed.minDomains = int(*c.MinDomains)
		}
		out = append(out, parsed)
	}
	return out
}

// withAction returns the constraints with an action for when they cannot be met.
func withAction(constraints []spreadConstraint, when corev1.UnsatisfiableConstraintAction) ([]spreadConstraint, error) {
	var out []spreadConstraint
	for _, c := range constraints {
		if c.when != when {
			continue
		}
		if c.err != nil {
			return nil, c.err
		}
		out = append(out, c)
	}
	return out, nil
}

// constraints returns those of the pod, or the default ones, with an action for when they cannot be met.
func (p *podTopologySpread) constraints(pod *Pod, s *Snapshot, when corev1.UnsatisfiableConstraintAction) ([]spreadConstraint, error) {
	kind := "hard"
	if when == corev1.ScheduleAnyway {
		kind = "soft"
	}
	if len(pod.spread) > 0 {
		out, err := withAction(pod.spread, when)
		if err != nil {
			return nil, fmt.Errorf("obtaining pod's %s topology spread constraints: %w", kind, err)
		}
		return out, nil
	}
	if s.workloads == nil {
		return nil, nil
	}
	out, err := withAction(p.defaults, when)
	if err != nil {
		return nil, fmt.Errorf("setting default %s topology spread constraints: %w", kind, err)
	}
	if len(out) == 0 {
		return nil, nil
	}
	selector := s.workloads.DefaultSelector(pod.Pod)
	if selector.Empty() {
		return nil, nil
	}
	key := selectorKey(selector)
	for i := range out {
		out[i].selector, out[i].selectorKey = selector, key
	}
	return out, nil
}

// inclusion decides which nodes count for which constraints.
type inclusion struct {
	pod         *Pod
	constraints []spreadConstraint
	domains     []nodeDomains
	needAll     bool // only nodes that have the labels of all constraints count
}

func newInclusion(h *shared, pod *Pod, s *Snapshot, constraints []spreadConstraint, needAll bool) (inclusion, []int) {
	c := inclusion{pod: pod, constraints: constraints, domains: make([]nodeDomains, len(constraints)), needAll: needAll}
	sizes := make([]int, len(constraints))
	for i := range constraints {
		c.domains[i], sizes[i] = h.nodeDomains(constraints[i].topologyKey, s)
	}
	return c, sizes
}

// hasLabels reports whether the node has the topology labels it needs.
func (c *inclusion) hasLabels(n *Node) bool {
	if c.needAll {
		for _, of := range c.domains {
			if of[n.slot] == noDomain {
				return false
			}
		}
	}
	return true
}

// includes reports whether the node counts for a constraint by its inclusion policies.
func (c *inclusion) includes(i int, n *Node) bool {
	constraint := &c.constraints[i]
	if constraint.honorAffinity && c.pod.nodeAffinity != nil && !c.pod.matchesNode(n.Node) {
		return false
	}
	return !constraint.honorTaints || !untolerated(n.Spec.Taints, c.pod.Spec.Tolerations)
}

// spreadTally counts by slot the pods of the namespace that a constraint's selector matches.
func (h *shared) spreadTally(namespace string, c *spreadConstraint, s *Snapshot) []int32 {
	return h.tally("spread\x00"+namespace+"\x00"+c.selectorKey, s, func(p *Pod) bool { return c.matches(namespace, p) })
}

// matches reports whether the pod is counted by the constraint. Terminating pods are not; an empty selector matches none.
func (c *spreadConstraint) matches(namespace string, p *Pod) bool {
	return p.DeletionTimestamp == nil && p.Namespace == namespace && !c.selector.Empty() && c.selector.Matches(labels.Set(p.Labels))
}

func (p *podTopologySpread) PreFilter(pod *Pod, s *Snapshot) PreFilterResult {
	constraints, err := p.constraints(pod, s, corev1.DoNotSchedule)
	if err != nil {
		return PreFilterResult{Status: failure(PodTopologySpread, fmt.Errorf("get constraints from pod: %w", err))}
	}
	if len(constraints) == 0 {
		return PreFilterResult{}
	}
	s.home.lock()
	defer s.home.mu.Unlock()
	check := &spreadCheck{plugin: p}
	var sizes []int
	check.inclusion, sizes = newInclusion(s.home, pod, s, constraints, true)
	for i := range constraints {
		check.spreads = append(check.spreads, newSpread(sizes[i], &constraints[i], pod))
		check.spreads[i].fill(i, &check.inclusion, s, s.home.spreadTally(pod.Namespace, &constraints[i], s))
	}
	return PreFilterResult{Check: check}
}

// spreadCheck refuses domains that have too many pods.
type spreadCheck struct {
	plugin *podTopologySpread
	inclusion
	spreads []spread
}

// spread holds how many matching pods each domain of a constraint has.
type spread struct {
	counts  []int32 // by domain; absent if it has no included node
	domains int
	least   int32 // the smallest count
	atLeast int   // number of domains that have it
	self    int32 // 1 if the pod itself matches
}

const absent int32 = -1 << 31

func newSpread(size int, c *spreadConstraint, pod *Pod) spread {
	s := spread{counts: make([]int32, size)}
	for i := range s.counts {
		s.counts[i] = absent
	}
	if c.selector.Matches(labels.Set(pod.Labels)) {
		s.self = 1
	}
	return s
}

func (sp *spread) fill(i int, c *inclusion, s *Snapshot, perSlot []int32) {
	for _, n := range s.nodes {
		if !c.hasLabels(n) || !c.includes(i, n) {
			continue
		}
		d := c.domains[i][n.slot]
		if sp.counts[d] == absent {
			sp.counts[d] = 0
			sp.domains++
		}
		sp.counts[d] += perSlot[n.slot]
	}
	sp.findLeast()
}

func (sp *spread) findLeast() {
	sp.least, sp.atLeast = 0, 0
	for _, count := range sp.counts {
		switch {
		case count == absent:
		case sp.atLeast == 0 || count < sp.least:
			sp.least, sp.atLeast = count, 1
		case count == sp.least:
			sp.atLeast++
		}
	}
}

// move changes the count of a domain by delta.
func (sp *spread) move(domain, delta int32) {
	if sp.counts[domain] == absent {
		sp.counts[domain] = 0
		sp.domains++
	}
	before := sp.counts[domain]
	sp.counts[domain] += delta
	if after := sp.counts[domain]; after < sp.least {
		sp.least, sp.atLeast = after, 1
	} else if before == sp.least || after == sp.least {
		sp.findLeast()
	}
}

func (c *spreadCheck) Filter(n *Node) *Status {
	for i := range c.constraints {
		d := c.domains[i][n.slot]
		if d == noDomain {
			return c.plugin.missingLabel
		}
		sp, constraint := &c.spreads[i], &c.constraints[i]
		least := sp.least
		if sp.domains < constraint.minDomains {
			least = 0
		}
		count := sp.counts[d]
		if count == absent {
			count = 0
		}
		if count+sp.self-least > constraint.maxSkew {
			return c.plugin.skewed
		}
	}
	return nil
}

func (c *spreadCheck) Clone() Adjustable {
	out := *c
	out.spreads = slices.Clone(c.spreads)
	for i := range out.spreads {
		out.spreads[i].counts = slices.Clone(c.spreads[i].counts)
	}
	return &out
}

func (c *spreadCheck) AddPod(pod *Pod, on *Node) { c.move(pod, on, 1) }

func (c *spreadCheck) RemovePod(pod *Pod, from *Node) { c.move(pod, from, -1) }

func (c *spreadCheck) move(pod *Pod, n *Node, delta int32) {
	if pod.Namespace != c.pod.Namespace || !c.hasLabels(n) {
		return
	}
	for i := range c.constraints {
		if c.constraints[i].selector.Matches(labels.Set(pod.Labels)) && c.includes(i, n) {
			c.spreads[i].move(c.domains[i][n.slot], delta)
		}
	}
}

func (p *podTopologySpread) EventsToRegister() []EventWithHint {
	return []EventWithHint{
		{AssignedPod, Add | UpdatePodLabel | Delete, p.assignedPodMayHelp},
		{TargetPod, UpdatePodToleration | UpdatePodLabel, p.ownChangeMayHelp},
		{NodeKind, Add | Delete | UpdateNodeLabel | UpdateNodeTaint, p.nodeMayHelp},
	}
}

// hard returns the constraints that the pod was refused by. Default ones are not known here: their selector depends on the cluster.
func (p *podTopologySpread) hard(pod *Pod) (constraints []spreadConstraint, known bool) {
	constraints, err := withAction(pod.spread, corev1.DoNotSchedule)
	return constraints, err == nil && len(pod.spread) > 0
}

func (p *podTopologySpread) assignedPodMayHelp(pod *Pod, e Event) bool {
	for _, other := range []*Pod{e.OldPod, e.NewPod} {
		if other != nil && (!other.placed() || other.Namespace != pod.Namespace) {
			return false
		}
	}
	constraints, known := p.hard(pod)
	if !known {
		return true
	}
	return slices.ContainsFunc(constraints, func(c spreadConstraint) bool {
		before := e.OldPod != nil && c.selector.Matches(labels.Set(e.OldPod.Labels))
		return before != (e.NewPod != nil && c.selector.Matches(labels.Set(e.NewPod.Labels)))
	})
}

func (p *podTopologySpread) ownChangeMayHelp(pod *Pod, e Event) bool {
	constraints, known := p.hard(pod)
	if !known {
		return true
	}
	return slices.ContainsFunc(constraints, func(c spreadConstraint) bool {
		return c.honorTaints && e.Action&UpdatePodToleration != 0 ||
			c.selector.Matches(labels.Set(e.OldPod.Labels)) != c.selector.Matches(labels.Set(e.NewPod.Labels))
	})
}

func (p *podTopologySpread) nodeMayHelp(pod *Pod, e Event) bool {
	constraints, known := p.hard(pod)
	if !known {
		return true
	}
	labelled := func(n *corev1.Node) bool {
		return n != nil && !slices.ContainsFunc(constraints, func(c spreadConstraint) bool { _, ok := n.Labels[c.topologyKey]; return !ok })
	}
	before, now := labelled(e.OldNode), labelled(e.NewNode)
	if before != now || !now || e.OldNode == nil {
		return before != now
	}
	return !equality.Semantic.DeepEqual(e.OldNode.Spec.Taints, e.NewNode.Spec.Taints) || slices.ContainsFunc(constraints, func(c spreadConstraint) bool {
		return e.OldNode.Labels[c.topologyKey] != e.NewNode.Labels[c.topologyKey]
	})
}
