package scheduling

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	schedv1 "k8s.io/kube-scheduler/config/v1"
)

// interPodAffinity places a pod near pods that its affinity matches, and apart from those that its anti-affinity, or theirs, keeps away.
type interPodAffinity struct {
	hardWeight              int64 // weight of required affinity of pods on nodes in scores
	ignorePreferredOfOthers bool  // ignores preferred terms of pods on nodes, for a pod that has none

	noAffinity, antiAffinity, theirAntiAffinity *Status
}

func newInterPodAffinity(args *schedv1.InterPodAffinityArgs) *interPodAffinity {
	return &interPodAffinity{
		hardWeight:              int64(*args.HardPodAffinityWeight),
		ignorePreferredOfOthers: args.IgnorePreferredTermsOfExistingPods,
		noAffinity:              refuse(InterPodAffinity, UnschedulableAndUnresolvable, "node(s) didn't match pod affinity rules"),
		antiAffinity:            refuse(InterPodAffinity, Unschedulable, "node(s) didn't match pod anti-affinity rules"),
		theirAntiAffinity:       refuse(InterPodAffinity, Unschedulable, "node(s) didn't satisfy existing pods anti-affinity rules"),
	}
}

func (*interPodAffinity) Name() string { return InterPodAffinity }

// target is a term of the incoming pod, with the namespaces that its namespace selector matches.
type target struct {
	key           string // equal for terms about the same pods
	topologyKey   string
	namespaces    []string
	allNamespaces bool
	selector      labels.Selector
}

func newTarget(t *Term, s *Snapshot) target {
	out := target{topologyKey: t.TopologyKey, namespaces: t.Namespaces, selector: t.Selector, allNamespaces: t.NamespaceSelector.Empty()}
	if _, selects := t.NamespaceSelector.Requirements(); selects && !out.allNamespaces {
		out.namespaces = slices.Clone(t.Namespaces)
		for name, set := range s.namespaces {
			if t.NamespaceSelector.Matches(set) {
				out.namespaces = append(out.namespaces, name)
			}
		}
		slices.Sort(out.namespaces)
		out.namespaces = slices.Compact(out.namespaces)
	}
	if out.allNamespaces {
		out.namespaces = nil
	}
	out.key = fmt.Sprintf("%t\x00%s\x00%s", out.allNamespaces, strings.Join(out.namespaces, ","), selectorKey(t.Selector))
	return out
}

func newTargets(terms []Term, s *Snapshot) []target {
	out := make([]target, len(terms))
	for i := range terms {
		out[i] = newTarget(&terms[i], s)
	}
	return out
}

func (t *target) matches(pod *Pod) bool {
	return (t.allNamespaces || slices.Contains(t.namespaces, pod.Namespace)) && t.selector.Matches(labels.Set(pod.Labels))
}

func (h *shared) targetTally(t *target, s *Snapshot) []int32 {
	return h.tally("term\x00"+t.key, s, t.matches)
}

// targets holds terms that a pod must match all of.
type targets []target

func (ts targets) matches(pod *Pod) bool {
	return len(ts) > 0 && !slices.ContainsFunc(ts, func(t target) bool { return !t.matches(pod) })
}

func (h *shared) targetsTally(ts targets, s *Snapshot) []int32 {
	key := "terms"
	for i := range ts {
		key += "\x01" + ts[i].key
	}
	return h.tally(key, s, ts.matches)
}

func (p *interPodAffinity) PreFilter(pod *Pod, s *Snapshot) PreFilterResult {
	if pod.affinityErr != nil {
		return PreFilterResult{Status: refuse(InterPodAffinity, UnschedulableAndUnresolvable, fmt.Sprintf("parsing pod: %+v", pod.affinityErr))}
	}
	asks := len(pod.RequiredAffinity)+len(pod.RequiredAntiAffinity) > 0
	if !asks && s.sums.withAntiAffinity == 0 {
		return PreFilterResult{}
	}
	s.home.lock()
	defer s.home.mu.Unlock()
	c := &affinityCheck{plugin: p, pod: pod, namespace: s.namespaces[pod.Namespace]}
	if s.sums.withAntiAffinity > 0 {
		s.home.heldAbout(pod, s, func(t *heldTerm) {
			perDomain := c.theirs.of(t.term.TopologyKey, s)
			for _, sum := range t.sums {
				perDomain.counts[sum.domain] += sum.sum
			}
		}, requiredAnti)
	}
	if !asks && len(c.theirs) == 0 {
		return PreFilterResult{}
	}
	if c.affinity = newTargets(pod.RequiredAffinity, s); len(c.affinity) > 0 {
		perSlot := s.home.targetsTally(c.affinity, s)
		for i := range c.affinity {
			c.wanted.of(c.affinity[i].topologyKey, s)
		}
		for i := range c.wanted {
			c.matching += c.wanted[i].add(s.nodes, perSlot, 1)
		}
		c.self = c.affinity.matches(pod)
	}
	c.anti = newTargets(pod.RequiredAntiAffinity, s)
	for i := range c.anti {
		c.unwanted.of(c.anti[i].topologyKey, s).add(s.nodes, s.home.targetTally(&c.anti[i], s), 1)
	}
	// Nodes that are checked later may hold pods whose terms have topology keys that no pod on a node has now.
	c.snapshot = s
	return PreFilterResult{Check: c}
}

// perKey holds counts by domain for several topology keys.
type perKey []perDomain

// perDomain holds counts by the domains of a topology key.
type perDomain struct {
	key         string
	nodeDomains nodeDomains
	counts      []int64
}

// of returns the counts of a key, zero if there were none. The preparation's lock must be held.
func (k *perKey) of(key string, s *Snapshot) *perDomain {
	for i := range *k {
		if (*k)[i].key == key {
			return &(*k)[i]
		}
	}
	of, size := s.home.nodeDomains(key, s)
	*k = append(*k, perDomain{key, of, make([]int64, size)})
	return &(*k)[len(*k)-1]
}

// add adds counts by slot, times weight, and returns the sum.
func (d *perDomain) add(nodes []*Node, perSlot []int32, weight int64) (sum int64) {
	for _, n := range nodes {
		if count := int64(perSlot[n.slot]); count != 0 && d.nodeDomains[n.slot] != noDomain {
			d.counts[d.nodeDomains[n.slot]] += count * weight
			sum += count
		}
	}
	return sum
}

// at returns the count of the node's domain; found is false if the node is in no domain of the key.
func (d *perDomain) at(n *Node) (count int64, found bool) {
	domain := d.nodeDomains[n.slot]
	if domain == noDomain {
		return 0, false
	}
	return d.counts[domain], true
}

// anyAt reports whether any count is above zero in the node's domains.
func (k perKey) anyAt(n *Node) bool {
	for i := range k {
		if count, _ := k[i].at(n); count > 0 {
			return true
		}
	}
	return false
}

func (k perKey) clone() perKey {
	out := slices.Clone(k)
	for i := range out {
		out[i].counts = slices.Clone(k[i].counts)
	}
	return out
}

// affinityCheck checks whether a pod's required affinity and anti-affinity, and those of other pods that match it, allow it on a node.
type affinityCheck struct {
	plugin    *interPodAffinity
	pod       *Pod
	namespace labels.Set
	snapshot  *Snapshot

	affinity targets
	wanted   perKey // pods that match all of affinity
	matching int64  // the sum of wanted
	self     bool   // the pod itself matches all of its affinity

	anti     []target
	unwanted perKey // pods that match any of anti

	theirs perKey // pods whose anti-affinity matches this pod
}

func (c *affinityCheck) Filter(n *Node) *Status {
	satisfied := true
	for i := range c.wanted {
		count, found := c.wanted[i].at(n)
		if !found {
			return c.plugin.noAffinity
		}
		satisfied = satisfied && count > 0
	}
	// The first of a group of pods with affinity to each other matches no other pod: it may go anywhere.
	if !satisfied && (c.matching != 0 || !c.self) {
		return c.plugin.noAffinity
	}
	if c.unwanted.anyAt(n) {
		return c.plugin.antiAffinity
	}
	if c.theirs.anyAt(n) {
		return c.plugin.theirAntiAffinity
	}
	return nil
}

func (c *affinityCheck) Clone() Adjustable {
	out := *c
	out.wanted, out.unwanted, out.theirs = c.wanted.clone(), c.unwanted.clone(), c.theirs.clone()
	return &out
}

func (c *affinityCheck) AddPod(pod *Pod, on *Node) { c.move(pod, on, 1) }

func (c *affinityCheck) RemovePod(pod *Pod, from *Node) { c.move(pod, from, -1) }

func (c *affinityCheck) move(pod *Pod, n *Node, delta int64) {
	if c.affinity.matches(pod) {
		for i := range c.wanted {
			c.matching += c.wanted[i].move(n, delta)
		}
	}
	for i := range c.anti {
		if c.anti[i].matches(pod) {
			c.counts(&c.unwanted, c.anti[i].topologyKey).move(n, delta)
		}
	}
	for i := range pod.RequiredAntiAffinity {
		if t := &pod.RequiredAntiAffinity[i]; t.Matches(c.pod, c.namespace) {
			c.counts(&c.theirs, t.TopologyKey).move(n, delta)
		}
	}
}

func (c *affinityCheck) counts(k *perKey, key string) *perDomain {
	c.snapshot.home.lock()
	defer c.snapshot.home.mu.Unlock()
	return k.of(key, c.snapshot)
}

func (d *perDomain) move(n *Node, delta int64) int64 {
	if d.nodeDomains[n.slot] == noDomain {
		return 0
	}
	d.counts[d.nodeDomains[n.slot]] += delta
	return delta
}

func (p *interPodAffinity) EventsToRegister() []EventWithHint {
	return []EventWithHint{
		{AssignedPod, Add | UpdatePodLabel | Delete, podMayHelpAffinity},
		{TargetPod, UpdatePodLabel, nil},
		{NodeKind, Add | UpdateNodeLabel, nodeMayHelpAffinity},
	}
}

func matchesAll(terms []Term, pod *Pod) bool {
	return len(terms) > 0 && !slices.ContainsFunc(terms, func(t Term) bool { return !t.Matches(pod, nil) })
}

func matchesAny(terms []Term, pod *Pod) bool {
	return slices.ContainsFunc(terms, func(t Term) bool { return t.Matches(pod, nil) })
}

func podMayHelpAffinity(pod *Pod, e Event) bool {
	if e.OldPod != nil && !e.OldPod.placed() || e.NewPod != nil && !e.NewPod.placed() {
		return false
	}
	switch {
	case pod.badAffinity || pod.badAntiAffinity:
		return true
	case e.OldPod == nil:
		return matchesAll(pod.RequiredAffinity, e.NewPod)
	case e.NewPod == nil:
		return matchesAny(pod.RequiredAntiAffinity, e.OldPod) || e.OldPod.badAntiAffinity || matchesAny(e.OldPod.RequiredAntiAffinity, pod)
	}
	return !matchesAll(pod.RequiredAffinity, e.OldPod) && matchesAll(pod.RequiredAffinity, e.NewPod) ||
		matchesAny(pod.RequiredAntiAffinity, e.OldPod) && !matchesAny(pod.RequiredAntiAffinity, e.NewPod)
}

func nodeMayHelpAffinity(pod *Pod, e Event) bool {
	if pod.badAffinity || pod.badAntiAffinity || e.OldNode == nil && len(pod.RequiredAntiAffinity) > 0 {
		return true
	}
	label := func(n *corev1.Node, key string) (value string, ok bool) {
		if n != nil {
			value, ok = n.Labels[key]
		}
		return value, ok
	}
	for i := range pod.RequiredAffinity {
		before, had := label(e.OldNode, pod.RequiredAffinity[i].TopologyKey)
		if now, has := label(e.NewNode, pod.RequiredAffinity[i].TopologyKey); has && (!had || before != now) {
			return true
		}
	}
	for i := range pod.RequiredAntiAffinity {
		before, had := label(e.OldNode, pod.RequiredAntiAffinity[i].TopologyKey)
		if now, has := label(e.NewNode, pod.RequiredAntiAffinity[i].TopologyKey); had && (!has || before != now) {
			return true
		}
	}
	return false
}
