package scheduler

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"skiff/internal/scheduling"
)

// preemption finds pods to evict to make room for another.
type preemption struct {
	args PreemptionArgs
	pdbs []*policyv1.PodDisruptionBudget
	// current returns a pod on a node with its current status.
	current func(*scheduling.Pod) *scheduling.Pod
	// startAt returns which of the nodes to begin with, so that it is not always the same ones.
	startAt func(nodes int) int
	now     time.Time
}

// candidate is a node that a pod fits on when the victims, the most important first, are evicted.
type candidate struct {
	node       *scheduling.Node
	victims    []*scheduling.Pod
	violations int // number of victims whose eviction violates a disruption budget
}

// preemptionResult is the result of preemption.
type preemptionResult struct {
	candidate *candidate // nil: none
	message   string
	// clearNomination reports that the pod is no longer nominated for any node.
	clearNomination bool
}

// find returns the node where evicting pods does least harm.
func (p *preemption) find(s *search, d *diagnosis) preemptionResult {
	if why := p.eligible(s, d); why != "" {
		return preemptionResult{message: "preemption: " + why}
	}
	candidates, refused, err := p.candidates(s, d)
	if len(candidates) == 0 {
		if err != nil {
			return preemptionResult{message: "preemption: " + err.Error()}
		}
		nothing := diagnosis{nodes: d.nodes, refused: refused, unchecked: notHelpful}
		return preemptionResult{message: "preemption: " + nothing.message(), clearNomination: true}
	}
	best := p.best(candidates)
	return preemptionResult{candidate: best, message: fmt.Sprintf("preemption: found a potential placement for pod on node %s, preempting %d victims", best.node.Name, len(best.victims))}
}

var (
	notHelpful = &scheduling.Status{Code: scheduling.UnschedulableAndUnresolvable, Reasons: []string{"Preemption is not helpful for scheduling"}}
	noVictims  = &verdict{Status: &scheduling.Status{Code: scheduling.UnschedulableAndUnresolvable, Reasons: []string{"No preemption victims found for incoming pod"}}}
)

// eligible returns why the pod may not preempt others, or "".
func (p *preemption) eligible(s *search, d *diagnosis) string {
	if policy := s.pod.Spec.PreemptionPolicy; policy != nil && *policy == corev1.PreemptNever {
		return "not eligible due to preemptionPolicy=Never."
	}
	name := s.pod.Status.NominatedNodeName
	n := s.snapshot.Node(name)
	if name == "" || n == nil {
		return ""
	}
	// If its nominated node cannot take it whatever is evicted, it may preempt elsewhere.
	at := s.order.position[name]
	i := slices.IndexFunc(d.refused, func(r refusal) bool { return r.at == at })
	if i < 0 || d.refused[i].verdict.Code == scheduling.UnschedulableAndUnresolvable {
		return ""
	}
	for _, other := range n.Pods {
		if other.Priority < s.pod.Priority && endingByPreemption(p.current(other)) {
			return "not eligible due to a terminating pod on the nominated node."
		}
	}
	return ""
}

func endingByPreemption(pod *scheduling.Pod) bool {
	if pod.DeletionTimestamp == nil {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget {
			return c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonPreemptionByScheduler
		}
	}
	return false
}

// candidates dry-runs preemption on nodes until there are enough candidates. refused holds the nodes where it does not help.
func (p *preemption) candidates(s *search, d *diagnosis) (found []*candidate, refused []refusal, err error) {
	var nodes []int32
	for _, r := range d.refused {
		if r.verdict.Code == scheduling.Unschedulable {
			nodes = append(nodes, r.at)
		}
	}
	if len(nodes) == 0 {
		return nil, nil, nil
	}
	slices.Sort(nodes)
	enough := min(max(len(nodes)*int(p.args.MinCandidateNodesPercentage)/100, int(p.args.MinCandidateNodesAbsolute)), len(nodes))
	nonViolating := 0 // candidates that violate no budget: there should be one
	from := p.startAt(len(nodes))
	for i := range nodes {
		at := nodes[(from+i)%len(nodes)]
		c, why, failed := p.victims(s, s.snapshot.Nodes()[at])
		switch {
		case failed != nil:
			err = failed
		case why != nil:
			refused = append(refused, refusal{at, why})
		case len(c.victims) == 0:
			err = fmt.Errorf("expected at least one victim pod on node %q", c.node.Name)
		default:
			found = append(found, c)
			if c.violations == 0 {
				nonViolating++
			}
		}
		if nonViolating > 0 && len(found) >= enough {
			break
		}
	}
	return found, refused, err
}

// victims returns the fewest and least important pods to evict from a node so that the pod fits there.
func (p *preemption) victims(s *search, n *scheduling.Node) (*candidate, *verdict, error) {
	var lower, queueSkip []*scheduling.Pod
	for _, other := range n.Pods {
		if other.Priority < s.pod.Priority {
			lower = append(lower, other)
		} else {
			queueSkip = append(queueSkip, other)
		}
	}
	if len(lower) == 0 {
		return nil, noVictims, nil
	}
	trial := &search{view: s.view, profile: s.profile, pod: s.pod, checks: cloneChecks(s.checks)}
	without := scheduling.NewNode(n.Node, queueSkip...)
	for _, v := range lower {
		removePod(trial.checks, v, without)
	}
	if refused, err := trial.filterNode(without); refused != nil || err != nil {
		return nil, refused, err
	}
	// The most important ones may stay if the pod still fits, first of all those that a budget protects.
	p.byImportance(lower)
	c := &candidate{node: n}
	protected, others := p.split(lower)
	for i, group := range [][]*scheduling.Pod{protected, others} {
		for _, v := range group {
			with := without.With(v)
			addPod(trial.checks, v, with)
			refused, err := trial.filterNode(with)
			if err != nil {
				return nil, nil, err
			}
			if refused == nil {
				without = with
				continue
			}
			removePod(trial.checks, v, without)
			c.victims = append(c.victims, v)
			if i == 0 {
				c.violations++
			}
		}
	}
	p.byImportance(c.victims)
	return c, nil, nil
}

// byImportance sorts pods of higher priority first, then those that have run longer.
func (p *preemption) byImportance(pods []*scheduling.Pod) {
	slices.SortStableFunc(pods, func(a, b *scheduling.Pod) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), p.started(a).Compare(p.started(b)))
	})
}

func (p *preemption) started(pod *scheduling.Pod) time.Time {
	if start := p.current(pod).Status.StartTime; start != nil {
		return start.Time
	}
	return p.now // it has not started yet
}

// split separates the pods whose eviction would violate a disruption budget, if all before them are evicted too.
func (p *preemption) split(pods []*scheduling.Pod) (protected, others []*scheduling.Pod) {
	allowed := make([]int32, len(p.pdbs))
	for i, pdb := range p.pdbs {
		allowed[i] = pdb.Status.DisruptionsAllowed
	}
	for _, pod := range pods {
		if p.violates(pod, allowed) {
			protected = append(protected, pod)
		} else {
			others = append(others, pod)
		}
	}
	return protected, others
}

func (p *preemption) violates(pod *scheduling.Pod, allowed []int32) bool {
	if len(pod.Labels) == 0 {
		return false
	}
	for i, pdb := range p.pdbs {
		if pdb.Namespace != pod.Namespace {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
		// For eviction an empty selector selects nothing.
		if err != nil || selector.Empty() || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if _, counted := pdb.Status.DisruptedPods[pod.Name]; counted {
			continue
		}
		if allowed[i]--; allowed[i] < 0 {
			return true
		}
	}
	return false
}

// best returns the candidate that does least harm: fewest violated budgets, least important victims, smallest sum of their priorities, fewest victims,
// the latest start of the most important ones.
func (p *preemption) best(candidates []*candidate) *candidate {
	return slices.MinFunc(candidates, func(a, b *candidate) int {
		return cmp.Or(
			cmp.Compare(a.violations, b.violations),
			cmp.Compare(a.victims[0].Priority, b.victims[0].Priority),
			cmp.Compare(a.sum(), b.sum()),
			cmp.Compare(len(a.victims), len(b.victims)),
			p.earliest(b).Compare(p.earliest(a)),
		)
	})
}

// sum returns the sum of the victims' priorities, shifted so that fewer pods always have a smaller sum.
func (c *candidate) sum() (sum int64) {
	for _, v := range c.victims {
		sum += int64(v.Priority) + math.MaxInt32 + 1
	}
	return sum
}

// earliest returns when the first of the most important victims started.
func (p *preemption) earliest(c *candidate) time.Time {
	first := p.started(c.victims[0])
	for _, v := range c.victims[1:] {
		if v.Priority == c.victims[0].Priority {
			if t := p.started(v); t.Before(first) {
				first = t
			}
		}
	}
	return first
}

// randomStart returns a random node to begin with.
func randomStart(nodes int) int { return rand.IntN(nodes) }
