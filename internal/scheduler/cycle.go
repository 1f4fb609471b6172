package scheduler

import (
	"fmt"
	"slices"
	"time"

	"skiff/internal/scheduling"
)

const (
	// minFeasibleNodes is how many nodes a pod is scored on at least, if so many can take it.
	minFeasibleNodes = 100
	// minFeasiblePercentage is the least share of nodes that is looked for in large clusters.
	minFeasiblePercentage = 5
)

// view is a moment of the cluster as a cycle looks at it.
type view struct {
	snapshot  *scheduling.Snapshot
	order     *nodeOrder
	nominated map[string][]*scheduling.Pod // pods that wait for room on a node
}

// cycle finds nodes for pods, one pod after the other. What it found out about nodes it remembers for pods alike.
type cycle struct {
	memory memory
	start  int // the position where it goes on looking for nodes, so that all get their chance
	turn   int // of equal nodes, the first from this position on is taken

	// Kept from pod to pod so that they need not be made anew.
	feasible  []*scheduling.Node
	positions []int32
	refused   []refusal
	totals    []int64
	raw       []int64
	scores    []uint8
	stale     staleNodes
}

// outcome is what came of a cycle. It holds until the next one.
type outcome struct {
	node      *scheduling.Node // nil: none fits
	evaluated int
	diagnosis
	scored // if it came to that
	times  times
}

// times is how long the plugins took, in all; 0 if it did not come to that.
type times struct{ preFilter, filter, score time.Duration }

// scored are the scores that nodes got.
type scored struct {
	positions []int32
	plugins   []string
	scores    []uint8 // normalized: those of the first plugin for all nodes, then those of the second, ...
	weights   []int64
}

// decide finds the node for a pod, or why there is none. An error is one of a plugin, not a verdict.
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
	return out, nil
}

// search is one pod's search for a node.
type search struct {
	view
	profile *profile
	pod     *scheduling.Pod
	checks  []check
	only    []string // if not nil, nodes of other names need not be looked at
	known   *remembered
}

// check is a filter plugin that has something to say about the pod.
type check struct {
	scheduling.Check
	index int // of the plugin in the profile
	// whole is set if it looks at other nodes too: what it says is not remembered.
	whole scheduling.Adjustable
}

// prepare asks the filter plugins about the pod. nil: it is refused everywhere.
func prepare(p *profile, pod *scheduling.Pod, v view, d *diagnosis) (*search, error) {
	s := &search{view: v, profile: p, pod: pod, checks: make([]check, 0, len(p.Filters))}
	var refused *scheduling.Status
	var limiting pluginSet
	for i, f := range p.Filters {
		prepared := f.PrepareFilter(pod, v.snapshot)
		if !prepared.Status.OK() {
			switch prepared.Status.Code {
			case scheduling.UnschedulableAndUnresolvable:
				d.everywhere(prepared.Status, p.filterBits[i])
				return nil, nil
			case scheduling.Unschedulable:
				refused = prepared.Status // another may have a better reason
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
				d.everywhere(nobodyLeft(p, limiting), limiting)
				return nil, nil
			}
		}
		if prepared.Check != nil {
			whole, _ := prepared.Check.(scheduling.Adjustable)
			s.checks = append(s.checks, check{prepared.Check, i, whole})
		}
	}
	if refused != nil {
		d.everywhere(refused, d.refusedBy)
		return nil, nil
	}
	d.refusedBy = limiting
	if s.only != nil {
		d.absent = &scheduling.Status{Code: scheduling.UnschedulableAndUnresolvable,
			Reasons: []string{fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", filterNames(p, limiting))}}
	}
	return s, nil
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

// filterNames are the sorted names of some of a profile's filter plugins.
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
		// Room was made for it there, so it need not look elsewhere if it fits.
		if i, ok := s.order.position[name]; ok && (s.only == nil || slices.Contains(s.only, name)) {
			if refused, err := s.ask(s.snapshot.Nodes()[i]); err == nil && refused == nil {
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

// filterNamed looks at the nodes that were named.
func (c *cycle) filterNamed(s *search, d *diagnosis) error {
	var nodes []int32
	for _, name := range s.only {
		if i, ok := s.order.position[name]; ok {
			nodes = append(nodes, i)
		}
	}
	wanted := s.wanted(len(nodes))
	for i := range nodes {
		at := nodes[(c.start+i)%len(nodes)]
		refused, err := s.ask(s.snapshot.Nodes()[at])
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

// filterAll looks at all nodes in turn, with what is remembered of them.
func (c *cycle) filterAll(s *search, d *diagnosis) error {
	nodes := s.snapshot.Nodes()
	s.known = c.memory.of(s)
	wanted := s.wanted(len(nodes))
	whole := slices.ContainsFunc(s.checks, func(k check) bool { return k.whole != nil })
	at := c.start % len(nodes)
	for range nodes {
		n := nodes[at]
		if s.known.nodes[at] != n {
			if err := s.learn(at, n); err != nil {
				return err
			}
		}
		refused := s.known.refused[at]
		if whole || s.nominated != nil {
			var err error
			if refused, err = s.askMore(n, refused); err != nil {
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

// wanted is how many feasible nodes are enough, among so many.
func (s *search) wanted(nodes int) int {
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

// learn asks the plugins that look at nothing but the node, and remembers what they say.
func (s *search) learn(at int, n *scheduling.Node) error {
	refused, err := firstRefusal(s.checks, n, func(k check) bool { return k.whole == nil })
	if err != nil {
		return err
	}
	s.known.nodes[at], s.known.refused[at], s.known.scored[at] = n, refused, 0
	return nil
}

// ask asks all plugins about a node, with the pods that wait for room there and without.
func (s *search) ask(n *scheduling.Node) (*verdict, error) {
	if s.nominatedOn(n) {
		if refused, err := s.askCrowded(n); refused != nil || err != nil {
			return refused, err
		}
	}
	return firstRefusal(s.checks, n, func(check) bool { return true })
}

// askMore asks the plugins whose answers are not remembered, given the first of the others that refused the node. In the order of the plugins
// the first refusal counts.
func (s *search) askMore(n *scheduling.Node, refused *verdict) (*verdict, error) {
	if s.nominatedOn(n) {
		if refused, err := s.askCrowded(n); refused != nil || err != nil {
			return refused, err
		}
	}
	first, err := firstRefusal(s.checks, n, func(k check) bool { return k.whole != nil && (refused == nil || k.index < refused.index) })
	if first != nil || err != nil {
		return first, err
	}
	return refused, nil
}

// nominatedOn reports whether pods wait for room on the node that this one must leave to them.
func (s *search) nominatedOn(n *scheduling.Node) bool {
	return len(s.nominated) > 0 && slices.ContainsFunc(s.nominated[n.Name], s.yields)
}

func (s *search) yields(to *scheduling.Pod) bool {
	return to.Priority >= s.pod.Priority && to.UID != s.pod.UID
}

// askCrowded asks about a node as if the pods that wait for room there were on it.
func (s *search) askCrowded(n *scheduling.Node) (*verdict, error) {
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

// cloneChecks copies checks so that those that look at other nodes can be told of pods that come or go.
func cloneChecks(checks []check) []check {
	out := slices.Clone(checks)
	for i := range out {
		if out[i].whole != nil {
			out[i].whole = out[i].whole.Clone()
			out[i].Check = out[i].whole
		}
	}
	return out
}

func addPod(checks []check, p *scheduling.Pod, on *scheduling.Node) {
	for _, k := range checks {
		if k.whole != nil {
			k.whole.AddPod(p, on)
		}
	}
}

func removePod(checks []check, p *scheduling.Pod, from *scheduling.Node) {
	for _, k := range checks {
		if k.whole != nil {
			k.whole.RemovePod(p, from)
		}
	}
}
