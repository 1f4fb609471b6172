package deployment

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"skiff/internal/controller"
)

// roll moves pods from the old ReplicaSets to the new one, as far as the strategy allows at the moment.
func (p *plan) roll() controller.Decision {
	return p.withNew(func() controller.Decision {
		if !p.grow() && !p.shrink() && p.isComplete(&p.seen.Status) {
			p.cleanUp()
		}
		return p.carryOut(true)
	})
}

// grow scales the new ReplicaSet, and says whether it did.
func (p *plan) grow() bool {
	if p.new.size() > p.replicas() {
		return p.scale(p.new, p.replicas())
	}
	return p.scale(p.new, p.newSize(p.new.size()))
}

// newSize is how large the new ReplicaSet, which has size now, may be. Pods that old ReplicaSets have not got rid of yet take up room, so that
// the surge is never exceeded; upstream goes by what is asked of them.
func (p *plan) newSize(size int32) int32 {
	if !p.isRolling() {
		return p.replicas()
	}
	sets := p.all()
	room := p.replicas() + p.maxSurge() - sum(sets, (*set).held)
	if room <= 0 || slices.ContainsFunc(sets, (*set).unseen) {
		return size
	}
	return size + min(room, p.replicas()-size)
}

// held is how many pods a ReplicaSet has or may have at any moment, once it has seen what is asked of it.
func (s *set) held() int32 { return max(s.size(), s.actual()) }

// unseen is whether a ReplicaSet's status is not about what is asked of it now. It will be soon.
func (s *set) unseen() bool { return s.Generation > s.Status.ObservedGeneration }

// shrink scales the old ReplicaSets down, and says whether it did.
func (p *plan) shrink() bool {
	old := activeOf(p.old)
	minAvailable := p.replicas() - p.maxUnavailable()
	// Pods of the new ReplicaSet that are not available yet must not make room for fewer old ones: they may never be.
	room := sum(p.all(), (*set).size) - minAvailable - p.new.unavailable()
	if len(old) == 0 || room <= 0 {
		return false
	}
	shrunk := false
	// First those that are of no use to anybody: the ReplicaSet deletes unavailable pods first.
	for _, s := range old {
		if sick := min(room, s.unavailable()); sick > 0 {
			room -= sick
			shrunk = p.scale(s, s.size()-sick) || shrunk
		}
	}
	surplus := sum(p.all(), (*set).lasting) - minAvailable
	for _, s := range old {
		if n := min(surplus, s.size()); n > 0 {
			surplus -= n
			shrunk = p.scale(s, s.size()-n) || shrunk
		}
	}
	return shrunk
}

// lasting is how many available pods a ReplicaSet will have once it has its size: those beyond are as good as gone.
func (s *set) lasting() int32 { return min(s.available(), s.size()) }

// unavailable is how many of the pods that a ReplicaSet shall have are not available.
func (s *set) unavailable() int32 { return s.size() - s.lasting() }

func (p *plan) isRolling() bool {
	return p.deployment.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType
}

// maxSurge is how many pods there may be beyond those wanted.
func (p *plan) maxSurge() int32 {
	surge, _ := p.fenceposts()
	return surge
}

// maxUnavailable is how many of those wanted need not be available.
func (p *plan) maxUnavailable() int32 {
	_, unavailable := p.fenceposts()
	return min(unavailable, p.replicas())
}

// fenceposts are surge and unavailability in pods: the former rounded up, the latter down. With neither nothing could be replaced, so one may
// be unavailable then, as a surge might be against a quota.
func (p *plan) fenceposts() (surge, unavailable int32) {
	rolling := p.deployment.Spec.Strategy.RollingUpdate
	if !p.isRolling() {
		return 0, 0
	}
	if rolling != nil {
		surge, unavailable = pods(rolling.MaxSurge, p.replicas(), true), pods(rolling.MaxUnavailable, p.replicas(), false)
	}
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, unavailable
}

// pods is a number or a percentage of all pods. What is neither, which validation refuses, is none.
func pods(n *intstr.IntOrString, of int32, up bool) int32 {
	if n == nil {
		return 0
	}
	count, err := intstr.GetScaledValueFromIntOrPercent(n, int(of), up)
	if err != nil {
		return 0
	}
	return int32(count)
}
