package deployment

import (
	corev1 "k8s.io/api/core/v1"

	"skiff/internal/controller"
)

// recreate scales all old ReplicaSets to zero and waits for their pods to end before it starts new ones.
func (p *plan) recreate() controller.Decision {
	scaledDown := false
	for _, s := range p.old {
		scaledDown = p.scale(s, 0) || scaledDown
	}
	if scaledDown || p.oldPodsRunning() {
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

// oldPodsRunning reports whether old pods run, or the status of an old ReplicaSet says so.
func (p *plan) oldPodsRunning() bool {
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
