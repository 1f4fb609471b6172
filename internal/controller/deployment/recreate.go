package deployment

import (
	corev1 "k8s.io/api/core/v1"

	"skiff/internal/controller"
)

// recreate ends all old pods before it starts new ones.
func (p *plan) recreate() controller.Decision {
	ended := false
	for _, s := range p.old {
		ended = p.scale(s, 0) || ended
	}
	if ended || p.oldPodsRun() {
		return p.carryOut(true)
	}
	return p.withNew(func() controller.Decision {
		p.scale(p.new, p.replicas())
		if p.isComplete(&p.seen.Status) {
			p.cleanUp()
		}
		return p.carryOut(true)
	})
}

// oldPodsRun says whether old pods run, or an old ReplicaSet thinks so.
func (p *plan) oldPodsRun() bool {
	for _, s := range p.old {
		if s.actual() > 0 {
			return true
		}
		for _, pod := range p.pods(s.UID) {
			if pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded {
				return true
			}
		}
	}
	return false
}
