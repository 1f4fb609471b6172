package scheduling

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	schedv1 "k8s.io/kube-scheduler/config/v1"
)

// balancedAllocation favours nodes where the pod brings the used shares of the resources closer to each other.
type balancedAllocation struct{ resources []schedv1.ResourceSpec }

func (*balancedAllocation) Name() string { return NodeResourcesBalancedAllocation }

func (*balancedAllocation) EventsToRegister() []EventWithHint { return nil }

func (p *balancedAllocation) PreScore(pod *Pod, _ *Snapshot, _ []*Node) (Scorer, *Status) {
	scorer := &balanceScorer{parts: make([]part, 0, len(p.resources))}
	asks := false
	for _, r := range p.resources {
		name := corev1.ResourceName(r.Name)
		part := part{kind: kindOf(name), name: name, request: pod.Requests.Of(name)}
		asks = asks || part.request != 0
		if part.counts() {
			scorer.parts = append(scorer.parts, part)
		}
	}
	if !asks {
		// A pod without requests does not change the balance: the best balanced node would get all such pods.
		return nil, nil
	}
	return scorer, nil
}

type balanceScorer struct{ parts []part }

func (*balanceScorer) Local() bool { return true }

func (*balanceScorer) Normalize([]*Node, []int64) {}

// Score is 75 if the pod does not change the balance, up to 100 if it improves it and down to 50 if it worsens it.
func (s *balanceScorer) Score(nodes []*Node, scores []int64) {
	var with, without shares
	for i, n := range nodes {
		with.reset()
		without.reset()
		for j := range s.parts {
			p := &s.parts[j]
			allocatable, allocated := p.of(n, CPUMemory{n.Requested.MilliCPU, n.Requested.Memory})
			if allocatable == 0 {
				continue
			}
			with.add(allocated+p.request, allocatable)
			without.add(allocated, allocatable)
		}
		scores[i] = MaxScore/2 + (MaxScore/2+with.balance()-without.balance())/2
	}
}

// shares holds the used shares of several resources of one node.
type shares struct {
	list []float64
	sum  float64
}

func (s *shares) reset() { s.list, s.sum = s.list[:0], 0 }

func (s *shares) add(requested, allocatable int64) {
	share := min(float64(requested)/float64(allocatable), 1)
	s.list = append(s.list, share)
	s.sum += share
}

// balance returns MaxScore less the standard deviation.
func (s *shares) balance() int64 {
	var deviation float64
	switch count := float64(len(s.list)); {
	case len(s.list) == 2:
		deviation = math.Abs((s.list[0] - s.list[1]) / 2)
	case len(s.list) > 2:
		mean, sum := s.sum/count, 0.0
		for _, share := range s.list {
			sum += (share - mean) * (share - mean)
		}
		deviation = math.Sqrt(sum / count)
	}
	return int64((1 - deviation) * float64(MaxScore))
}
