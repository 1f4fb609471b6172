package deployment

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"skiff/internal/controller"
)

// roll moves pods from the old ReplicaSets to the new one, as far as maxSurge and maxUnavailable allow at the moment.
func (p *plan) roll() controller.Decision {
	return p.withNew(func() controller.Decision {
		if !p.scaleUpNew() && !p.scaleDownOld() && p.isComplete(&p.seen.Status) {
			p.cleanUp()
		}
		return p.carryOut(true)
	})
}

// scaleUpNew scales the new ReplicaSet, and reports whether it did.
func (p *plan) scaleUpNew() bool {
	if p.new.size() > p.replicas() {
		return p.scale(p.new, p.replicas())
	}
	return p.scale(p.new, p.newSize(p.new.size()))
}

// newSize returns how large the new ReplicaSet, which has size now, may be. Pods that old ReplicaSets still have count, so that maxSurge is never
// exceeded; upstream counts only what is asked of them.
func (p *plan) newSize(size int32) int32 {
	if !p.isRolling() {
		return p.replicas()
	}
	sets := p.all()
	room := p.replicas() + p.maxSurge() - sum(sets, (*set).maxPods)
	if room <= 0 || slices.ContainsFunc(sets, (*set).isStale) {
		return size
	}
	return size + min(room, p.replicas()-size)
}

// maxPods returns how many pods a ReplicaSet has or may create, once it has observed its spec.
func (s *set) maxPods() int32 { return max(s.size(), s.actual()) }

// isStale reports whether a ReplicaSet's status is older than its spec.
func (s *set) isStale() bool { return s.Generation > s.Status.ObservedGeneration }

// scaleDownOld scales the old ReplicaSets down, and reports whether it did.
func (p *plan) scaleDownOld() bool {
	old := activeOf(p.old)
	minAvailable := p.replicas() - p.maxUnavailable()
	// Unavailable pods of the new ReplicaSet must not let old ones go: they may never become available.
	room := sum(p.all(), (*set).size) - minAvailable - p.new.unavailable()
	if len(old) == 0 || room <= 0 {
		return false
	}
	shrunk := false
	// Unavailable pods go first: the ReplicaSet deletes those first.
	for _, s := range old {
		if unhealthy := min(room, s.unavailable()); unhealthy > 0 {
			room -= unhealthy
			shrunk = p.scale(s, s.size()-unhealthy) || shrunk
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

// lasting returns how many available pods a ReplicaSet will have once it is scaled to its size.
func (s *set) lasting() int32 { return min(s.available(), s.size()) }

// unavailable returns how many pods of a ReplicaSet's size are not available.
func (s *set) unavailable() int32 { return s.size() - s.lasting() }

func (p *plan) isRolling() bool {
	return p.deployment.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType
}

// maxSurge returns how many pods there may be beyond spec.replicas.
func (p *plan) maxSurge() int32 {
	surge, _ := p.fenceposts()
	return surge
}

// maxUnavailable returns how many of spec.replicas may be unavailable.
func (p *plan) maxUnavailable() int32 {
	_, unavailable := p.fenceposts()
	return min(unavailable, p.replicas())
}

// fenceposts returns maxSurge, rounded up, and maxUnavailable, rounded down, in pods. If both are zero nothing could be replaced, so one pod may
// then be unavailable: a surge might exceed a quota.
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

// pods resolves a number or percentage of pods. It returns 0 for what is neither, which validation refuses.
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
