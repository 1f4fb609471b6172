package scheduling

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	schedv1 "k8s.io/kube-scheduler/config/v1"
)

// part is one resource in a score: the pod's request and the resource's weight.
type part struct {
	kind    resourceKind
	name    corev1.ResourceName
	request int64
	weight  int64
}

type resourceKind uint8

const (
	cpu resourceKind = iota
	memory
	ephemeralStorage
	scalar
	uncounted
)

func kindOf(name corev1.ResourceName) resourceKind {
	switch {
	case name == corev1.ResourceCPU:
		return cpu
	case name == corev1.ResourceMemory:
		return memory
	case name == corev1.ResourceEphemeralStorage:
		return ephemeralStorage
	case IsScalar(name):
		return scalar
	}
	return uncounted
}

// counts reports whether the resource matters for the pod: extended resources only if it requests them.
func (p *part) counts() bool { return p.kind < scalar || p.kind == scalar && p.request != 0 }

// of returns how much the node has of the resource, and how much is used; in scores, pods without requests use something.
func (p *part) of(n *Node, taken CPUMemory) (allocatable, allocated int64) {
	switch p.kind {
	case cpu:
		return n.Allocatable.MilliCPU, taken.MilliCPU
	case memory:
		return n.Allocatable.Memory, taken.Memory
	case ephemeralStorage:
		return n.Allocatable.EphemeralStorage, n.Requested.EphemeralStorage
	default:
		return n.Allocatable.Scalar(p.name), n.Requested.Scalar(p.name)
	}
}

// strategy is how NodeResourcesFit turns what is used of a node, including the pod, into a score.
type strategy struct {
	kind  schedv1.ScoringStrategyType
	shape []schedv1.UtilizationShapePoint
}

// maxShapeScore is the best score of a shape in the configuration.
const maxShapeScore = 10

func newStrategy(args *schedv1.ScoringStrategy) strategy {
	s := strategy{kind: args.Type}
	if args.RequestedToCapacityRatio != nil {
		s.shape = args.RequestedToCapacityRatio.Shape
	}
	return s
}

// fitScorer scores by the weighted mean of the scores of the resources.
type fitScorer struct {
	parts    []part
	strategy strategy
}

func (*fitScorer) Local() bool { return true }

func (*fitScorer) Normalize([]*Node, []int64) {}

func (s *fitScorer) Score(nodes []*Node, scores []int64) {
	for i, n := range nodes {
		var sum, weights int64
		for j := range s.parts {
			p := &s.parts[j]
			allocatable, allocated := p.of(n, n.NonZero)
			if allocatable == 0 {
				continue
			}
			score := s.strategy.score(allocated+p.request, allocatable)
			if score == 0 && s.strategy.kind == schedv1.RequestedToCapacityRatio {
				continue
			}
			sum += score * p.weight
			weights += p.weight
		}
		switch {
		case weights == 0:
			scores[i] = 0
		case s.strategy.kind == schedv1.RequestedToCapacityRatio:
			scores[i] = int64(math.Round(float64(sum) / float64(weights)))
		default:
			scores[i] = sum / weights
		}
	}
}

func (s *strategy) score(requested, allocatable int64) int64 {
	// In scores more than all may be requested, as pods without requests count for something.
	requested = min(requested, allocatable)
	switch s.kind {
	case schedv1.MostAllocated:
		return requested * MaxScore / allocatable
	case schedv1.RequestedToCapacityRatio:
		return s.interpolate(requested * 100 / allocatable)
	}
	return (allocatable - requested) * MaxScore / allocatable
}

// interpolate returns the score at a utilization in percent, on the line through the points of the shape.
func (s *strategy) interpolate(utilization int64) int64 {
	scale := func(p schedv1.UtilizationShapePoint) int64 { return int64(p.Score) * (MaxScore / maxShapeScore) }
	for i, point := range s.shape {
		if utilization > int64(point.Utilization) {
			continue
		}
		if i == 0 {
			return scale(point)
		}
		before := s.shape[i-1]
		return scale(before) + (scale(point)-scale(before))*(utilization-int64(before.Utilization))/int64(point.Utilization-before.Utilization)
	}
	return scale(s.shape[len(s.shape)-1])
}
