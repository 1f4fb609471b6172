package scheduler

import (
	"fmt"
	"slices"
	"time"

	"skiff/internal/scheduling"
)

const (
	// minFeasibleNodes is how many feasible nodes are searched for at least.
	minFeasibleNodes = 100
	// minFeasiblePercentage is the smallest share of nodes that is searched for in large clusters.
	minFeasiblePercentage = 5
)

// view is the state of the cluster that one cycle works on.
type view struct {
	snapshot  *scheduling.Snapshot
	order     *nodeOrder
	nominated map[string][]*scheduling.Pod // pods that are nominated for each node
}

// cycle finds nodes for pods, one pod after the other. It caches what plugins say about nodes for pods of the same shape.
type cycle struct {
	results resultCache
	start   int // the position where the search for nodes continues, so that all nodes get their chance
	turn    int // of nodes with equal scores, the first from this position on is taken

	// The slices below are kept from pod to pod to avoid allocations.
	feasible  []*scheduling.Node
	positions []int32
	refused   []refusal
	totals    []int64
	raw       []int64
	scores    []uint8
	stale     staleNodes
}

// outcome is the result of a cycle. It is valid until the next one.
type outcome struct {
	node      *scheduling.Node // nil: no node fits
	evaluated int
	diagnosis
	scored                                  // zero if no node was scored
	reservations []scheduling.Reservation   // what plugins need before the pod is bound
	releases     []*scheduling.ClaimRelease // what to release as no node fits
	times        times
}

// times holds how long the plugins of each extension point took; 0 if they were not called.
type times struct{ preFilter, filter, score time.Duration }

// scored holds the scores that nodes got.
type scored struct {
	positions []int32
	plugins   []string
	scores    []uint8 // normalized: those of the first plugin for all nodes, then those of the second, ...
	weights   []int64
}

// decide finds the node for a pod, or why there is none. An error is a plugin's failure, not a refusal.
func (c *cycle) decide(p *profile, pod *scheduling.Pod, v view) (outcome, error) {
	out := outcome{diagnosis: diagnosis{nodes: len(v.snapshot.Nodes()), refused: c.refused[:0]}}
	defer func() { c.refused = out.refused }()
	if out.nodes == 0 {
		return out, errNoNodes
	}
	began := time.Now()
	s, err := prepare(p, pod, v, &out.diagnosis)
	out.times.preFilter = time.Since(began)
	if err != nil || s == nil {
		return out, err
	}
	began = time.Now()
	feasible, err := c.filter(s, &out.diagnosis)
	out.times.filter = time.Since(began)
	if err != nil {
		return out, err
	}
	out.evaluated = len(feasible) + len(out.refused)
	switch len(feasible) {
	case 0:
	case 1:
		out.node = feasible[0]
		c.turn = int(c.positions[0]) + 1
	default:
		began = time.Now()
		err := c.score(s, feasible, &out)
		out.times.score = time.Since(began)
		if err != nil {
			return out, err
		}
		out.node = c.pick(feasible)
	}
	if out.node != nil {
		out.reservations, err = s.reservations(out.node)
	} else {
		out.releases = s.releases()
	}
	return out, err
}

// search is the search for a node for one pod.
type search struct {
	view
	profile *profile
	pod     *scheduling.Pod
	checks  []check
	only    []string // if not nil, only nodes of these names can take the pod
	cached  *cachedResults
}

// check is a filter plugin that applies to the pod.
type check struct {
	scheduling.Check
	index int // of the plugin in the profile
	// adjustable is set if the plugin depends on other nodes too.
	adjustable scheduling.Adjustable
	// cached is set if the plugin depends on nothing but the pod and the node: its results are cached.
	cached bool
}

// prepare runs PreFilter. It returns nil if the pod is refused on all nodes.
func prepare(p *profile, pod *scheduling.Pod, v view, d *diagnosis) (*search, error) {
	s := &search{view: v, profile: p, pod: pod, checks: make([]check, 0, len(p.Filters))}
	var refused *scheduling.Status
	var limiting pluginSet
	for i, f := range p.Filters {
		prepared := f.PreFilter(pod, v.snapshot)
		if !prepared.Status.OK() {
			switch prepared.Status.Code {
			case scheduling.UnschedulableAndUnresolvable:
				d.refuseAll(prepared.Status, p.filterBits[i])
				return nil, nil
			case scheduling.Unschedulable:
				refused = prepared.Status // another plugin may have a better reason
				d.refusedBy = p.filterBits[i]
				continue
			default:
				return nil, fmt.Errorf("running PreFilter plugin %q: %w", f.Name(), asError(prepared.Status))
			}
		}
		if prepared.Nodes != nil {
			limiting |= p.filterBits[i]
			if s.only == nil {
				s.only = prepared.Nodes
			} else {
				s.only = intersect(s.only, prepared.Nodes)
			}
			if len(s.only) == 0 {
				d.refuseAll(nobodyLeft(p, limiting), limiting)
				return nil, nil
			}
		}
		if prepared.Check != nil {
			whole, _ := prepared.Check.(scheduling.Adjustable)
			s.checks = append(s.checks, check{prepared.Check, i, whole, whole == nil && !prepared.Uncached})
		}
	}
	if refused != nil {
		d.refuseAll(refused, d.refusedBy)
		return nil, nil
	}
	d.refusedBy = limiting
	if s.only != nil {
		d.unchecked = &scheduling.Status{Code: scheduling.UnschedulableAndUnresolvable,
			Reasons: []string{fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", filterNames(p, limiting))}}
	}
	return s, nil
}

// reservations returns what plugins need before the pod is bound to a node.
func (s *search) reservations(n *scheduling.Node) (list []scheduling.Reservation, err error) {
	for _, k := range s.checks {
		reserver, ok := k.Check.(scheduling.Reserver)
		if !ok {
			continue
		}
		r, err := reserver.Reserve(n)
		if err != nil {
			return nil, fmt.Errorf("running Reserve plugin %q: %w", s.profile.Filters[k.index].Name(), err)
		}
		if r != nil {
			list = append(list, r)
		}
	}
	return list, nil
}

// releases returns what plugins release if the pod fits on no node.
func (s *search) releases() (list []*scheduling.ClaimRelease) {
	for _, k := range s.checks {
		if releaser, ok := k.Check.(scheduling.Releaser); ok {
			if r := releaser.Release(s.snapshot.Nodes()); r != nil {
				list = append(list, r)
			}
		}
	}
	return list
}

func intersect(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(name string) bool { return !slices.Contains(b, name) })
}

func nobodyLeft(p *profile, limiting pluginSet) *scheduling.Status {
	names := filterNames(p, limiting)
	reason := fmt.Sprintf("node(s) didn't satisfy plugin(s) %v simultaneously", names)
	if len(names) == 1 {
		reason = fmt.Sprintf("node(s) didn't satisfy plugin %v", names[0])
	}
	return &scheduling.Status{Code: scheduling.UnschedulableAndUnresolvable, Reasons: []string{reason}}
}

// filterNames returns the sorted names of some of a profile's filter plugins.
func filterNames(p *profile, set pluginSet) []string {
	var names []string
	for i, bit := range p.filterBits {
		if set&bit != 0 {
			names = append(names, p.Filters[i].Name())
		}
	}
	slices.Sort(names)
	return names
}

// filter finds the nodes that can take the pod: all of a small cluster, enough of them in a large one.
func (c *cycle) filter(s *search, d *diagnosis) ([]*scheduling.Node, error) {
	c.feasible, c.positions = c.feasible[:0], c.positions[:0]
	if name := s.pod.Status.NominatedNodeName; name != "" {
		// The node that the pod is nominated for is checked first: if the pod fits there, no other is needed.
		if i, ok := s.order.position[name]; ok && (s.only == nil || slices.Contains(s.only, name)) {
			if refused, err := s.filterNode(s.snapshot.Nodes()[i]); err == nil && refused == nil {
				c.feasible, c.positions = append(c.feasible, s.snapshot.Nodes()[i]), append(c.positions, i)
				return c.feasible, nil
			}
		}
	}
	var err error
	if s.only != nil {
		err = c.filterNamed(s, d)
	} else {
		err = c.filterAll(s, d)
	}
	c.start = (c.start + len(c.feasible) + len(d.refused)) % len(s.snapshot.Nodes())
	return c.feasible, err
}

// filterNamed checks the nodes that PreFilter named.
func (c *cycle) filterNamed(s *search, d *diagnosis) error {
	var nodes []int32
	for _, name := range s.only {
		if i, ok := s.order.position[name]; ok {
			nodes = append(nodes, i)
		}
	}
	wanted := s.numFeasibleNodesToFind(len(nodes))
	for i := range nodes {
		at := nodes[(c.start+i)%len(nodes)]
		refused, err := s.filterNode(s.snapshot.Nodes()[at])
		if err != nil {
			return err
		}
		if refused != nil {
			d.refuse(at, refused, s.profile.filterBits[refused.index])
			continue
		}
		c.feasible, c.positions = append(c.feasible, s.snapshot.Nodes()[at]), append(c.positions, at)
		if len(c.feasible) == wanted {
			break
		}
	}
	return nil
}

// filterAll checks all nodes in turn, with the cached results.
func (c *cycle) filterAll(s *search, d *diagnosis) error {
	nodes := s.snapshot.Nodes()
	s.cached = c.results.of(s)
	wanted := s.numFeasibleNodesToFind(len(nodes))
	uncached := slices.ContainsFunc(s.checks, func(k check) bool { return !k.cached })
	at := c.start % len(nodes)
	for range nodes {
		n := nodes[at]
		if s.cached.nodes[at] != n {
			if err := s.cacheNode(at, n); err != nil {
				return err
			}
		}
		refused := s.cached.refused[at]
		if uncached || s.nominated != nil {
			var err error
			if refused, err = s.filterUncached(n, refused); err != nil {
				return err
			}
		}
		if refused != nil {
			d.refuse(int32(at), refused, s.profile.filterBits[refused.index])
		} else {
			c.feasible, c.positions = append(c.feasible, n), append(c.positions, int32(at))
			if len(c.feasible) == wanted {
				return nil
			}
		}
		if at++; at == len(nodes) {
			at = 0
		}
	}
	return nil
}

// numFeasibleNodesToFind returns how many feasible nodes are enough in a cluster of that size.
func (s *search) numFeasibleNodesToFind(nodes int) int {
	if len(s.profile.Scores) == 0 {
		return 1
	}
	if nodes < minFeasibleNodes {
		return nodes
	}
	percentage := int(s.profile.percentage)
	if percentage == 0 {
		percentage = max(50-nodes/125, minFeasiblePercentage)
	}
	return max(nodes*percentage/100, minFeasibleNodes)
}

// verdict is a plugin's refusal of a node.
type verdict struct {
	*scheduling.Status
	index int // of the plugin in the profile
}

// cacheNode runs the plugins that look only at the node, and caches the result.
func (s *search) cacheNode(at int, n *scheduling.Node) error {
	refused, err := firstRefusal(s.checks, n, func(k check) bool { return k.cached })
	if err != nil {
		return err
	}
	s.cached.nodes[at], s.cached.refused[at], s.cached.scored[at] = n, refused, 0
	return nil
}

// filterNode runs all plugins on a node, with the pods nominated for it and without.
func (s *search) filterNode(n *scheduling.Node) (*verdict, error) {
	if s.nominatedOn(n) {
		if refused, err := s.filterWithNominated(n); refused != nil || err != nil {
			return refused, err
		}
	}
	return firstRefusal(s.checks, n, func(check) bool { return true })
}

// filterUncached runs the plugins whose results are not cached; refused is the cached refusal of the others, if any. In the order of the plugins the
// first refusal counts.
func (s *search) filterUncached(n *scheduling.Node, refused *verdict) (*verdict, error) {
	if s.nominatedOn(n) {
		if refused, err := s.filterWithNominated(n); refused != nil || err != nil {
			return refused, err
		}
	}
	first, err := firstRefusal(s.checks, n, func(k check) bool { return !k.cached && (refused == nil || k.index < refused.index) })
	if first != nil || err != nil {
		return first, err
	}
	return refused, nil
}

// nominatedOn reports whether pods are nominated for the node that this one must leave room to.
func (s *search) nominatedOn(n *scheduling.Node) bool {
	return len(s.nominated) > 0 && slices.ContainsFunc(s.nominated[n.Name], s.yields)
}

func (s *search) yields(to *scheduling.Pod) bool {
	return to.Priority >= s.pod.Priority && to.UID != s.pod.UID
}

// filterWithNominated runs the plugins on a node as if the pods nominated for it were on it.
func (s *search) filterWithNominated(n *scheduling.Node) (*verdict, error) {
	checks := cloneChecks(s.checks)
	for _, p := range s.nominated[n.Name] {
		if s.yields(p) {
			n = n.With(p)
			addPod(checks, p, n)
		}
	}
	return firstRefusal(checks, n, func(check) bool { return true })
}

func firstRefusal(checks []check, n *scheduling.Node, asked func(check) bool) (*verdict, error) {
	for _, k := range checks {
		if !asked(k) {
			continue
		}
		if status := k.Filter(n); !status.OK() {
			if !status.Rejected() {
				return nil, fmt.Errorf("running %q filter plugin: %w", status.Plugin, asError(status))
			}
			return &verdict{status, k.index}, nil
		}
	}
	return nil, nil
}

// cloneChecks copies checks so that pods can be added to and removed from those that depend on other nodes.
func cloneChecks(checks []check) []check {
	out := slices.Clone(checks)
	for i := range out {
		if out[i].adjustable != nil {
			out[i].adjustable = out[i].adjustable.Clone()
			out[i].Check = out[i].adjustable
		}
	}
	return out
}

func addPod(checks []check, p *scheduling.Pod, on *scheduling.Node) {
	for _, k := range checks {
		if k.adjustable != nil {
			k.adjustable.AddPod(p, on)
		}
	}
}

func removePod(checks []check, p *scheduling.Pod, from *scheduling.Node) {
	for _, k := range checks {
		if k.adjustable != nil {
			k.adjustable.RemovePod(p, from)
		}
	}
}
