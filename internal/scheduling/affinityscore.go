package scheduling

import (
	"fmt"
	"math"
)

func (p *interPodAffinity) PreScore(pod *Pod, s *Snapshot, _ []*Node) (Scorer, *Status) {
	if p.ignorePreferredOfOthers && !pod.prefersPods {
		return nil, nil
	}
	if pod.affinityErr != nil {
		return nil, failure(InterPodAffinity, fmt.Errorf("failed to parse pod: %w", pod.affinityErr))
	}
	if !pod.prefersPods && s.sums.withAffinity == 0 {
		return nil, nil
	}
	s.home.lock()
	defer s.home.mu.Unlock()
	scorer := &affinityScorer{}
	scorer.addTerms(pod.PreferredAffinity, 1, s)
	scorer.addTerms(pod.PreferredAntiAffinity, -1, s)
	if s.sums.withAffinity > 0 {
		kinds := []termKind{preferred}
		if p.hardWeight > 0 {
			kinds = append(kinds, required)
		}
		s.home.heldAbout(pod, s, func(t *heldTerm) {
			weight := int64(1)
			if t.kind == required {
				weight = p.hardWeight
			}
			perDomain := scorer.sums.of(t.term.TopologyKey, s)
			for _, sum := range t.sums {
				perDomain.counts[sum.domain] += sum.sum * weight
			}
		}, kinds...)
	}
	if len(scorer.sums) == 0 {
		return nil, nil
	}
	return scorer, nil
}

// affinityScorer sums by domain the weights of the pod's preferred terms that pods there match, and of theirs that the pod matches.
type affinityScorer struct{ sums perKey }

// addTerms adds the pod's preferred terms; sign is -1 for anti-affinity.
func (a *affinityScorer) addTerms(terms []WeightedTerm, sign int64, s *Snapshot) {
	for i := range terms {
		t := newTarget(&terms[i].Term, s)
		a.sums.of(t.topologyKey, s).add(s.nodes, s.home.targetTally(&t, s), sign*int64(terms[i].Weight))
	}
}

func (*affinityScorer) Local() bool { return false }

func (a *affinityScorer) Score(nodes []*Node, scores []int64) {
	clear(scores)
	for i := range a.sums {
		sums := &a.sums[i]
		for j, n := range nodes {
			count, _ := sums.at(n)
			scores[j] += count
		}
	}
}

func (a *affinityScorer) Normalize(_ []*Node, scores []int64) {
	least, most := int64(math.MaxInt64), int64(math.MinInt64)
	for _, score := range scores {
		least, most = min(least, score), max(most, score)
	}
	for i, score := range scores {
		scores[i] = 0
		if most > least {
			scores[i] = int64(float64(MaxScore) * (float64(score-least) / float64(most-least)))
		}
	}
}
