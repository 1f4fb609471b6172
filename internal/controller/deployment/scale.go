package deployment

import (
	"cmp"
	"math"
	"slices"
	"strconv"
)

const (
	// desiredAnnotation holds the Deployment's replicas when a ReplicaSet was last scaled: if it differs from spec.replicas, the Deployment has
	// been scaled since.
	desiredAnnotation = "deployment.kubernetes.io/desired-replicas"
	// maxAnnotation holds the same number plus maxSurge.
	maxAnnotation = "deployment.kubernetes.io/max-replicas"
)

// annotateSize sets both annotations of a ReplicaSet.
func (p *plan) annotateSize(s *set) {
	desired, most := strconv.Itoa(int(p.replicas())), strconv.Itoa(int(p.replicas()+p.maxSurge()))
	if s.Annotations[desiredAnnotation] == desired && s.Annotations[maxAnnotation] == most {
		return
	}
	annotate(&p.change(s).ObjectMeta, desiredAnnotation, desired)
	annotate(&p.change(s).ObjectMeta, maxAnnotation, most)
}

// number returns an annotation that holds a number of replicas.
func (s *set) number(annotation string) (int32, bool) {
	n, err := strconv.ParseUint(s.Annotations[annotation], 10, 31)
	return int32(n), err == nil
}

// isScaled reports whether the Deployment was scaled since its ReplicaSets were.
func (p *plan) isScaled() bool {
	return slices.ContainsFunc(activeOf(p.all()), func(s *set) bool {
		desired, ok := s.number(desiredAnnotation)
		return ok && desired != p.replicas()
	})
}

// canBeScaled reports whether scaling gets anywhere. With strategy Recreate, several active ReplicaSets have no proportion to keep; upstream
// leaves such a Deployment, one of whose old ReplicaSets was scaled by hand, as it is for ever.
func (p *plan) canBeScaled() bool { return p.isRolling() || len(activeOf(p.all())) < 2 }

// scaleProportionally scales the ReplicaSets to the Deployment's replicas. During a rollout all of them grow or shrink in proportion, lest
// scaling hasten a rollout that may turn out to be a bad one.
func (p *plan) scaleProportionally() {
	active := activeOf(p.all())
	switch {
	case len(active) == 1:
		p.scaleTo(active[0], p.replicas())
	case len(active) == 0 && p.new != nil:
		p.scaleTo(p.new, p.replicas())
	case len(active) == 0 && len(p.old) > 0:
		p.scaleTo(p.old[len(p.old)-1], p.replicas())
	case len(active) == 0:
	case p.isSaturated():
		for _, s := range p.old {
			p.scale(s, 0)
		}
	case p.isRolling():
		p.distribute(active)
	}
}

// scaleTo scales the only relevant ReplicaSet. It updates the annotations even if the size stays: otherwise the Deployment would count as scaled
// for ever, and not be rolled out, after the ReplicaSet itself was scaled by hand.
func (p *plan) scaleTo(s *set, size int32) {
	if !p.scale(s, size) && s.Annotations[desiredAnnotation] != "" {
		p.annotateSize(s)
	}
}

// isSaturated reports whether the new ReplicaSet alone has all the replicas, and they are available.
func (p *plan) isSaturated() bool {
	if p.new == nil {
		return false
	}
	desired, ok := p.new.number(desiredAnnotation)
	return ok && desired == p.replicas() && p.new.size() == p.replicas() && p.new.available() == p.replicas()
}

// distribute adds replicas to, or removes them from, ReplicaSets in proportion to their sizes.
func (p *plan) distribute(sets []*set) {
	allowed := int32(0)
	if p.replicas() > 0 {
		allowed = p.replicas() + p.maxSurge()
	}
	toAdd := allowed - sum(sets, (*set).size)
	// The largest come first; of equal ones, the newer grow first and the older shrink first.
	slices.SortStableFunc(sets, func(a, b *set) int {
		age := olderFirst(a.ReplicaSet, b.ReplicaSet)
		if toAdd > 0 {
			age = -age
		}
		return cmp.Or(cmp.Compare(b.size(), a.size()), age)
	})
	added := int32(0)
	sizes := make([]int32, len(sets))
	for i, s := range sets {
		part := p.part(s, toAdd, toAdd-added)
		sizes[i] = s.size() + part
		added += part
	}
	sizes[0] = max(sizes[0]+toAdd-added, 0) // the remainder of rounding
	for i, s := range sets {
		p.scale(s, sizes[i])
		p.annotateSize(s)
	}
}

// part returns a ReplicaSet's part of the replicas to add, of which left are left.
func (p *plan) part(s *set, toAdd, left int32) int32 {
	if toAdd == 0 || left == 0 {
		return 0
	}
	if toAdd > 0 {
		return min(p.fraction(s), left)
	}
	return max(p.fraction(s), left)
}

// fraction returns by how much a ReplicaSet has to grow to keep its proportion of the Deployment.
func (p *plan) fraction(s *set) int32 {
	if p.replicas() == 0 {
		return -s.size()
	}
	before, ok := s.number(maxAnnotation)
	if !ok || before == 0 { // the annotation was removed or changed
		before = p.seen.Status.Replicas
	}
	if before == 0 {
		return 0
	}
	size := float64(s.size()) * float64(p.replicas()+p.maxSurge()) / float64(before)
	return int32(math.Round(size)) - s.size()
}
