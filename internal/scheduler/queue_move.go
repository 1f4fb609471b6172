package scheduler

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/scheduling"
)

// queueingStrategy is what to do with an unschedulable pod.
type queueingStrategy int

const (
	queueSkip         queueingStrategy = iota // it stays unschedulable
	queueAfterBackoff                         // it becomes active, or goes into back-off if that has not ended
)

// onEvent requeues pods that an event may make schedulable, by the hints of the plugins that refused them. only, if not nil, restricts the pods.
func (q *queue) onEvent(e scheduling.Event, only func(*scheduling.Pod) bool) {
	e.Devices = q.devices
	q.mu.Lock()
	defer q.mu.Unlock()
	interesting := false
	for _, p := range q.profiles {
		if p.interested(e) != 0 {
			interesting = true
		}
	}
	if !interesting {
		return
	}
	var toRequeue []*queuedPod
	for key, group := range q.waiting {
		// Pods need not be asked one by one if none of the plugins that refused them is interested. Gated pods wait only for their gate.
		interested := key.profile.interested(e)
		if key.refusedBy != 0 && interested&key.refusedBy == 0 {
			continue
		}
		for p := range group {
			if (only == nil || only(p.Pod)) && (p.gate == 0 || interested&p.gate != 0) && q.isWorthRequeuing(p, e) != queueSkip {
				toRequeue = append(toRequeue, p)
			}
		}
	}
	q.moveWaiting(toRequeue, eventLabel(e))
	if q.inFlight != nil {
		q.recordInFlight(e)
	}
}

// moveWaiting requeues unschedulable pods.
func (q *queue) moveWaiting(pods []*queuedPod, event string) {
	for _, p := range pods {
		q.removeFromPlace(p)
		q.requeue(p, queueAfterBackoff, event)
	}
}

// recordInFlight records an event while a pod is in flight.
func (q *queue) recordInFlight(e scheduling.Event) {
	if len(q.inFlightEvents) >= maxInFlightEvents {
		q.inFlightOverflow, q.inFlightEvents = true, nil
	}
	if !q.inFlightOverflow {
		q.inFlightEvents = append(q.inFlightEvents, e)
	}
}

// isWorthRequeuing asks the plugins that refused a pod whether an event may help it.
func (q *queue) isWorthRequeuing(p *queuedPod, e scheduling.Event) queueingStrategy {
	if p.refusedBy == 0 {
		return queueAfterBackoff
	}
	profile := q.profiles[p.Spec.SchedulerName]
	if profile == nil {
		return queueSkip // no profile is responsible for it any more
	}
	for _, i := range profile.interests[e.Kind] {
		if p.refusedBy&i.plugin != 0 && i.MayHelp(p.Pod, e) {
			return queueAfterBackoff
		}
	}
	return queueSkip
}

// requeue puts a pod that is in no place into its place. event is why, for metrics.
func (q *queue) requeue(p *queuedPod, s queueingStrategy, event string) {
	switch {
	case s == queueSkip:
		q.metrics.podQueued(unschedulableQueue, event)
		q.wait(p)
	case q.isBackingOff(p, time.Now()):
		q.makeBackoff(p, event)
	default:
		q.makeActive(p, event)
	}
}

// makeActive makes a pod active, unless it is gated.
func (q *queue) makeActive(p *queuedPod, event string) {
	if q.gated(p) {
		q.metrics.podQueued(unschedulableQueue, event)
		q.wait(p)
		return
	}
	q.metrics.podQueued(activeQueue, event)
	q.push(p, active)
}

func (q *queue) makeBackoff(p *queuedPod, event string) {
	if q.gated(p) {
		q.metrics.podQueued(unschedulableQueue, event)
		q.wait(p)
		return
	}
	q.metrics.podQueued(backoffQueue, event)
	switch {
	case p.refusedBy == 0:
		q.push(p, errorBackoff)
	default:
		q.push(p, backoff)
	}
}

func (q *queue) push(p *queuedPod, to place) {
	p.place = to
	q.heap(to).push(p)
	q.cond.Broadcast()
}

// gated runs the gates of a pod.
func (q *queue) gated(p *queuedPod) bool {
	p.gate = 0
	profile := q.profiles[p.Spec.SchedulerName]
	if profile == nil {
		return false
	}
	for _, g := range profile.gates {
		if !g.PreEnqueue(p.Pod).OK() {
			p.gate = g.plugin
			p.refusedBy |= g.plugin
			return true
		}
	}
	return false
}

func (q *queue) waitingKey(p *queuedPod) waitingKey {
	return waitingKey{q.profiles[p.Spec.SchedulerName], p.refusedBy, p.gate != 0}
}

func (q *queue) wait(p *queuedPod) {
	p.place = unschedulable
	key := q.waitingKey(p)
	if q.waiting[key] == nil {
		q.waiting[key] = map[*queuedPod]struct{}{}
	}
	q.waiting[key][p] = struct{}{}
}

func (q *queue) leaveWaiting(key waitingKey, p *queuedPod) {
	p.place = nowhere
	delete(q.waiting[key], p)
	if len(q.waiting[key]) == 0 {
		delete(q.waiting, key)
	}
}

// removeFromPlace removes a pod from its place.
func (q *queue) removeFromPlace(p *queuedPod) {
	switch p.place {
	case unschedulable:
		q.leaveWaiting(q.waitingKey(p), p)
	case active, backoff, errorBackoff:
		q.heap(p.place).remove(p)
	}
	p.place = nowhere
}

func (q *queue) heap(of place) *podHeap {
	switch of {
	case active:
		return &q.active
	case backoff:
		return &q.backoff
	default:
		return &q.errorBackoff
	}
}

// activate makes pods active at once.
func (q *queue) activate(keys ...types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, key := range keys {
		p := q.pods[key]
		switch {
		case p == nil || p.place == active:
		case p.place == inFlight:
			q.inFlightOverflow = true
		default:
			q.removeFromPlace(p)
			q.makeActive(p, forced)
		}
	}
}

// gateOpened requeues a pod that was gated when an event happened that may have helped it.
func (q *queue) gateOpened(key types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p := q.pods[key]; p != nil && p.place == unschedulable && p.gate != 0 {
		q.moveWaiting([]*queuedPod{p}, forced)
	}
}

// backoffExpiry returns when a pod's back-off ends.
func (q *queue) backoffExpiry(p *queuedPod) time.Time {
	count := p.unschedulable
	if p.errors > 0 {
		count = p.errors
	}
	if q.maxBackoff == 0 || count == 0 {
		return time.Time{}
	}
	if p.backoffUntil.IsZero() {
		wait := q.maxBackoff
		if shift := count - 1; q.initialBackoff <= q.maxBackoff>>shift {
			wait = q.initialBackoff << shift
		}
		p.backoffUntil = p.addedAt.Add(wait).Truncate(backoffWindow)
	}
	return p.backoffUntil
}

func (q *queue) isBackingOff(p *queuedPod, now time.Time) bool {
	return !q.backoffExpiry(p).Before(now.Truncate(backoffWindow))
}

// flushBackoff makes pods active whose back-off has ended.
func (q *queue) flushBackoff(now time.Time) {
	for _, from := range []*podHeap{&q.backoff, &q.errorBackoff} {
		for from.Len() > 0 && !q.isBackingOff(from.pods[0], now) {
			p := from.pop()
			p.place = active
			q.metrics.podQueued(activeQueue, backoffComplete)
			q.active.push(p) // the gates were asked when its back-off began
		}
	}
}

// run retries pods that have been unschedulable for too long, until ctx ends: a plugin's hints may have missed what helps them.
func (q *queue) run(ctx context.Context) {
	tick := time.NewTicker(flushPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			q.flush(now)
		}
	}
}

func (q *queue) flush(now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var toRequeue []*queuedPod
	for _, group := range q.waiting {
		for p := range group {
			last := p.addedAt
			if p.flushedAt.After(last) {
				last = p.flushedAt
			}
			if now.Sub(last) > q.maxWait {
				p.flushedAt = now
				toRequeue = append(toRequeue, p)
			}
		}
	}
	q.moveWaiting(toRequeue, unschedulableLong)
}
