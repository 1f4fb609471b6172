package scheduler

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/scheduling"
)

// strategy says what is to become of an unschedulable pod.
type strategy int

const (
	stay         strategy = iota // unschedulable
	afterBackoff                 // active, or in back-off if that is not over
)

// happened has pods tried again that a change gives a chance, as far as the plugins that refused them say. only, if not nil, leaves others out.
func (q *queue) happened(e scheduling.Event, only func(*scheduling.Pod) bool) {
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
	var wake []*queuedPod
	for key, group := range q.waiting {
		// Nobody need ask pod by pod if none of those who refused them cares. Gated pods wait for their gate alone.
		interested := key.profile.interested(e)
		if key.refusedBy != 0 && interested&key.refusedBy == 0 {
			continue
		}
		for p := range group {
			if (only == nil || only(p.Pod)) && (p.gate == 0 || interested&p.gate != 0) && q.worth(p, e) != stay {
				wake = append(wake, p)
			}
		}
	}
	q.wake(wake, eventLabel(e))
	if q.flying != nil {
		q.miss(e)
	}
}

// wake takes pods from among the unschedulable ones.
func (q *queue) wake(pods []*queuedPod, event string) {
	for _, p := range pods {
		q.take(p)
		q.requeue(p, afterBackoff, event)
	}
}

// miss notes what happened while a pod is in flight.
func (q *queue) miss(e scheduling.Event) {
	if len(q.missed) >= maxInFlightEvents {
		q.missedAll, q.missed = true, nil
	}
	if !q.missedAll {
		q.missed = append(q.missed, e)
	}
}

// worth asks the plugins that refused a pod whether a change may help it.
func (q *queue) worth(p *queuedPod, e scheduling.Event) strategy {
	if p.refusedBy == 0 {
		return afterBackoff
	}
	profile := q.profiles[p.Spec.SchedulerName]
	if profile == nil {
		return stay // nobody here is responsible for it any more
	}
	for _, i := range profile.interests[e.Kind] {
		if p.refusedBy&i.plugin != 0 && i.Wakes(p.Pod, e) {
			return afterBackoff
		}
	}
	return stay
}

// requeue puts a pod that is nowhere into its place. event is why, for metrics.
func (q *queue) requeue(p *queuedPod, s strategy, event string) {
	switch {
	case s == stay:
		q.metrics.came(unschedulableQueue, event)
		q.wait(p)
	case q.backingOff(p, time.Now()):
		q.makeBackoff(p, event)
	default:
		q.makeActive(p, event)
	}
}

// makeActive has a pod tried, unless a gate is closed.
func (q *queue) makeActive(p *queuedPod, event string) {
	if q.gated(p) {
		q.metrics.came(unschedulableQueue, event)
		q.wait(p)
		return
	}
	q.metrics.came(activeQueue, event)
	q.push(p, active)
}

func (q *queue) makeBackoff(p *queuedPod, event string) {
	if q.gated(p) {
		q.metrics.came(unschedulableQueue, event)
		q.wait(p)
		return
	}
	q.metrics.came(backoffQueue, event)
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
	q.some.Broadcast()
}

// gated asks the gates whether a pod may be tried.
func (q *queue) gated(p *queuedPod) bool {
	p.gate = 0
	profile := q.profiles[p.Spec.SchedulerName]
	if profile == nil {
		return false
	}
	for _, g := range profile.gates {
		if !g.Admit(p.Pod).OK() {
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

// take takes a pod out of its place.
func (q *queue) take(p *queuedPod) {
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

// activate has pods tried at once that were put aside.
func (q *queue) activate(keys ...types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, key := range keys {
		p := q.pods[key]
		switch {
		case p == nil || p.place == active:
		case p.place == inFlight:
			q.missedAll = true
		default:
			q.take(p)
			q.makeActive(p, forced)
		}
	}
}

// gateOpened has a pod tried that was kept back by a gate when something happened that may have helped it.
func (q *queue) gateOpened(key types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p := q.pods[key]; p != nil && p.place == unschedulable && p.gate != 0 {
		q.wake([]*queuedPod{p}, forced)
	}
}

// backoffEnds is when a pod may be tried again, at the earliest.
func (q *queue) backoffEnds(p *queuedPod) time.Time {
	count := p.unschedulable
	if p.errors > 0 {
		count = p.errors
	}
	if q.max == 0 || count == 0 {
		return time.Time{}
	}
	if p.backoffUntil.IsZero() {
		wait := q.max
		if shift := count - 1; q.initial <= q.max>>shift {
			wait = q.initial << shift
		}
		p.backoffUntil = p.since.Add(wait).Truncate(backoffWindow)
	}
	return p.backoffUntil
}

func (q *queue) backingOff(p *queuedPod, now time.Time) bool {
	return !q.backoffEnds(p).Before(now.Truncate(backoffWindow))
}

// endBackoffs makes those pods active whose back-off is over.
func (q *queue) endBackoffs(now time.Time) {
	for _, from := range []*podHeap{&q.backoff, &q.errorBackoff} {
		for from.Len() > 0 && !q.backingOff(from.pods[0], now) {
			p := from.pop()
			p.place = active
			q.metrics.came(activeQueue, backoffComplete)
			q.active.push(p) // the gates were asked when its back-off began
		}
	}
}

// run tries pods again that are unschedulable for long, until ctx ends: a plugin may have missed what helps them.
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
	var wake []*queuedPod
	for _, group := range q.waiting {
		for p := range group {
			last := p.since
			if p.flushed.After(last) {
				last = p.flushed
			}
			if now.Sub(last) > q.longest {
				p.flushed = now
				wake = append(wake, p)
			}
		}
	}
	q.wake(wake, unschedulableLong)
}
