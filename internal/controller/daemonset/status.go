package daemonset

import (
	"k8s.io/apimachinery/pkg/api/equality"

	"skiff/internal/controller"
	"skiff/internal/controller/owned"
)

// report updates the status, if it changed, from the observed pods. err, if not nil, requeues the set with back-off.
func (s *state) report(err error) controller.Decision {
	actions := s.failures
	next := s.set.DeepCopy()
	status := &next.Status
	status.ObservedGeneration = s.set.Generation
	status.DesiredNumberScheduled, status.CurrentNumberScheduled, status.NumberMisscheduled = 0, 0, 0
	status.NumberReady, status.UpdatedNumberScheduled, status.NumberAvailable = 0, 0, 0
	for i := range s.targets {
		p := &s.targets[i]
		if !p.exists {
			continue
		}
		if !p.shouldRun {
			if len(p.pods) > 0 {
				status.NumberMisscheduled++
			}
			continue
		}
		status.DesiredNumberScheduled++
		if len(p.pods) == 0 {
			continue
		}
		status.CurrentNumberScheduled++
		oldest := p.pods[0]
		if owned.Ready(oldest) {
			status.NumberReady++
			if s.available(oldest) {
				status.NumberAvailable++
			}
		}
		if s.updated(oldest) {
			status.UpdatedNumberScheduled++
		}
	}
	status.NumberUnavailable = status.DesiredNumberScheduled - status.NumberAvailable
	if !equality.Semantic.DeepEqual(s.set.Status, *status) {
		actions = append(actions, controller.UpdateStatus(next))
	}
	return controller.Decision{Actions: actions, RequeueAfter: s.requeueAfter, Err: err}
}
