package scheduling

import (
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

func (p *podTopologySpread) PreScore(pod *Pod, s *Snapshot, feasible []*Node) (Scorer, *Status) {
	if len(s.nodes) == 0 {
		return nil, nil
	}
	constraints, err := p.constraints(pod, s, corev1.ScheduleAnyway)
	if err != nil {
		return nil, failure(PodTopologySpread, fmt.Errorf("calculating preScoreState: %w", err))
	}
	if len(constraints) == 0 {
		return nil, nil
	}
	s.home.lock()
	defer s.home.mu.Unlock()
	// By the system's defaults, nodes without a zone are included too.
	needAll := len(pod.spread) > 0 || !p.systemDefaults
	scorer := &spreadScorer{}
	var sizes []int
	scorer.inclusion, sizes = newInclusion(s.home, pod, s, constraints, needAll)
	scored := 0
	for _, n := range feasible {
		if scorer.hasLabels(n) {
			scored++
		}
	}
	for i := range constraints {
		perSlot := s.home.spreadTally(pod.Namespace, &constraints[i], s)
		if constraints[i].topologyKey == corev1.LabelHostname {
			scorer.scales = append(scorer.scales, spreadScale{perNode: slices.Clone(perSlot), weight: spreadWeight(scored)})
			continue
		}
		perDomain, domains := scorer.sum(i, s, feasible, perSlot, sizes[i])
		scorer.scales = append(scorer.scales, spreadScale{perDomain: perDomain, weight: spreadWeight(domains)})
	}
	return scorer, nil
}

// spreadWeight compensates for constraints with many domains having fewer pods in each.
func spreadWeight(domains int) float64 { return math.Log(float64(domains + 2)) }

// spreadScorer scores by how many matching pods a node's domains have: the fewer the better.
type spreadScorer struct {
	inclusion
	scales []spreadScale
}

// spreadScale holds the counts of one constraint: pods per domain or, by host name, per node.
type spreadScale struct {
	perDomain []int64
	perNode   []int32
	weight    float64
}

// sum counts the matching pods of each domain of a feasible node, and these domains. Nodes without the label are one domain.
func (c *spreadScorer) sum(i int, s *Snapshot, feasible []*Node, perSlot []int32, size int) (sums []int64, domains int) {
	sums = make([]int64, size)
	wanted := make([]bool, size)
	for _, n := range feasible {
		if d := max(c.domains[i][n.slot], emptyDomain); c.hasLabels(n) && !wanted[d] {
			wanted[d] = true
			domains++
		}
	}
	for _, n := range s.nodes {
		d := max(c.domains[i][n.slot], emptyDomain)
		if count := perSlot[n.slot]; count > 0 && wanted[d] && c.hasLabels(n) && c.includes(i, n) {
			sums[d] += int64(count)
		}
	}
	return sums, domains
}

func (*spreadScorer) Local() bool { return false }

func (c *spreadScorer) Score(nodes []*Node, scores []int64) {
	for j, n := range nodes {
		scores[j] = 0
		if !c.hasLabels(n) {
			continue
		}
		var score float64
		for i := range c.scales {
			d := c.domains[i][n.slot]
			if d == noDomain {
				continue
			}
			scale := &c.scales[i]
			var count int64
			if scale.perNode != nil {
				count = int64(scale.perNode[n.slot])
			} else {
				count = scale.perDomain[d]
			}
			score += float64(count)*scale.weight + float64(c.constraints[i].maxSkew-1)
		}
		scores[j] = int64(math.Round(score))
	}
}

func (c *spreadScorer) Normalize(nodes []*Node, scores []int64) {
	least, most := int64(math.MaxInt64), int64(0)
	for i, n := range nodes {
		if c.hasLabels(n) {
			least, most = min(least, scores[i]), max(most, scores[i])
		}
	}
	for i, n := range nodes {
		switch {
		case !c.hasLabels(n):
			scores[i] = 0
		case most == 0:
			scores[i] = MaxScore
		default:
			scores[i] = MaxScore * (most + least - scores[i]) / most
		}
	}
}
