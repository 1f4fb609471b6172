package scheduler

import (
	"context"
	"fmt"
	"time"

	"skiff/internal/client"
	"skiff/internal/scheduling"
)

// maxPreBinding is how many pods at a time may wait for what they need before they are bound, such as volumes that are provisioned. At that number no
// further pod that needs something is scheduled until one of them is bound.
const maxPreBinding = 10000

// reserved is a Reservation that is being carried out.
type reserved interface {
	scheduling.Reservation
	// preBind writes what is reserved through the API and waits until the pod can be bound.
	preBind(ctx context.Context) error
	// unreserve drops what is reserved and not written.
	unreserve()
}

// reserve makes the following cycles see what plugins reserve for a pod.
func (s *Scheduler) reserve(pod *scheduling.Pod, reservations []scheduling.Reservation) ([]reserved, error) {
	if len(reservations) == 0 {
		return nil, nil
	}
	began := time.Now()
	var done []reserved
	for _, r := range reservations {
		var next reserved
		var err error
		switch r := r.(type) {
		case *scheduling.VolumeReservation:
			next, err = s.reserveVolumes(pod, r)
		case *scheduling.DeviceReservation:
			next, err = s.reserveDevices(pod, r)
		default:
			err = fmt.Errorf("unknown reservation %T", r)
		}
		if err != nil {
			unreserve(done)
			s.metrics.point("Reserve", pod.Spec.SchedulerName, scheduling.Error, time.Since(began))
			return nil, fmt.Errorf("running Reserve plugin %q: %w", r.Plugin(), err)
		}
		done = append(done, next)
	}
	s.metrics.point("Reserve", pod.Spec.SchedulerName, scheduling.Success, time.Since(began))
	return done, nil
}

func unreserve(list []reserved) {
	for i := len(list) - 1; i >= 0; i-- {
		list[i].unreserve()
	}
}

// preBindAsync carries out what is reserved for a pod while other pods are scheduled, and then binds it.
func (s *Scheduler) preBindAsync(p *queuedPod, assumed *scheduling.Pod, list []reserved, span *client.Span) {
	s.preBinding <- struct{}{}
	s.work.Go(func() {
		err := s.preBind(span.In(s.ctx), assumed, list)
		<-s.preBinding
		if err != nil {
			span.End(s.bindingFailed(p, assumed, list, err))
			return
		}
		s.bindAsync(func() { span.End(s.bind(span.In(s.ctx), p, assumed, list)) })
	})
}

// preBind returns when the pod can be bound. Until then its status says which node it is expected on.
func (s *Scheduler) preBind(ctx context.Context, pod *scheduling.Pod, list []reserved) error {
	node := pod.Spec.NodeName
	if latest, err := s.podLister.Pods(pod.Namespace).Get(pod.Name); err == nil && latest.UID == pod.UID {
		s.statuses.put(statusChange{pod: latest, nominated: &node})
	}
	began := time.Now()
	for _, r := range list {
		if err := r.preBind(client.Because(ctx, pod)); err != nil {
			s.metrics.point("PreBind", pod.Spec.SchedulerName, scheduling.Error, time.Since(began))
			return fmt.Errorf("running PreBind plugin %q: %w", r.Plugin(), err)
		}
	}
	s.metrics.point("PreBind", pod.Spec.SchedulerName, scheduling.Success, time.Since(began))
	return nil
}
