package scheduler

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/scheduling"
)

const (
	// maxUnschedulable is how long a pod waits for a change that may help it before it is tried again anyhow.
	maxUnschedulable = 5 * time.Minute
	// flushPeriod is how often it is looked for such pods.
	flushPeriod = 30 * time.Second
	// backoffWindow is how exactly back-off times are kept: pods of one window are ordered as if they ended together.
	backoffWindow = time.Second
	// maxInFlightEvents is how many changes are remembered while a pod is being tried. After more than that, anything may have happened.
	maxInFlightEvents = 10000
)

// place is where in the queue a pod is.
type place int

const (
	nowhere place = iota
	active
	backoff
	errorBackoff  // its last attempt failed by an error
	unschedulable // tried in vain, or gated
	inFlight      // being tried
)

func (p place) String() string {
	return [...]string{"nowhere", "active", "back-off", "error back-off", "unschedulable", "in flight"}[p]
}

// queuedPod is a pod in the queue. Only the queue, under its lock, and the cycle a pod is in flight in may touch it.
type queuedPod struct {
	*scheduling.Pod
	place place
	index int // in its heap

	since         time.Time // when it came, or came back
	first         time.Time // when it was tried for the first time
	tried         time.Time // when the attempt under way, or the last one, began
	attempts      int
	unschedulable int       // attempts in vain
	errors        int       // attempts that failed by an error, in a row
	backoffUntil  time.Time // zero if it was not computed yet
	flushed       time.Time // when it was last taken out of the unschedulable pods because it was there for long

	gone      bool
	refusedBy pluginSet // the plugins that said no
	gate      pluginSet // the one that keeps it from being tried at all
}

func (p *queuedPod) key() types.NamespacedName { return key(p.Pod) }

func key(pod *scheduling.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// queue holds the pods that wait to be scheduled. Those that are to be tried are active, in the order of the QueueSort plugin. A pod that
// no node took is unschedulable until something changes that its refusing plugins take for a chance; then it is active again, after a back-off
// that doubles with every vain attempt. When nothing is active, pods in back-off are tried early. One pod at a time is in flight.
type queue struct {
	profiles map[string]*profile
	less     func(a, b *queuedPod) bool
	initial  time.Duration // back-off
	max      time.Duration // back-off; 0: none
	longest  time.Duration // among the unschedulable

	mu     sync.Mutex
	some   *sync.Cond // a pod may be tried
	timer  *time.Timer
	closed bool
	pods   map[types.NamespacedName]*queuedPod
	active podHeap
	// Pods that wait until a time, ordered by its window and then as active ones; those that failed by an error apart, as they are not tried early.
	backoff, errorBackoff podHeap
	waiting               map[waitingKey]map[*queuedPod]struct{} // the unschedulable pods
	flying                *queuedPod
	missed                []scheduling.Event // what happened since it took off
	missedAll             bool               // too much happened, or it was asked to be tried again
	nominees              nominees
	metrics               *metrics // may be nil
}

// waitingKey groups unschedulable pods by who could be interested in a change.
type waitingKey struct {
	profile   *profile
	refusedBy pluginSet
	gated     bool
}

func newQueue(profiles map[string]*profile, sort scheduling.QueueSort, initial, longest, flush time.Duration) *queue {
	q := &queue{profiles: profiles, initial: initial, max: longest, longest: flush, pods: map[types.NamespacedName]*queuedPod{},
		waiting: map[waitingKey]map[*queuedPod]struct{}{}, nominees: newNominees()}
	q.some = sync.NewCond(&q.mu)
	q.less = func(a, b *queuedPod) bool { return sort.Less(a.Pod, a.since, b.Pod, b.since) }
	q.active.less = q.less
	q.errorBackoff.less = func(a, b *queuedPod) bool { return q.backoffEnds(a).Before(q.backoffEnds(b)) }
	q.backoff.less = func(a, b *queuedPod) bool {
		if x, y := q.backoffEnds(a), q.backoffEnds(b); !x.Equal(y) {
			return x.Before(y)
		}
		return q.less(a, b)
	}
	return q
}

// add takes in a new pod.
func (q *queue) add(pod *scheduling.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.addPod(pod)
}

func (q *queue) addPod(pod *scheduling.Pod) {
	q.nominees.set(pod, pod.Status.NominatedNodeName)
	p := &queuedPod{Pod: pod, since: time.Now()}
	if old := q.pods[p.key()]; old != nil { // of another uid, whose end was missed
		q.take(old)
	}
	q.pods[p.key()] = p
	q.makeActive(p, podAdded)
}

// update takes in a change of a pod that waits.
func (q *queue) update(pod *corev1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.pods[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}]
	if p == nil || p.UID != pod.UID {
		q.addPod(scheduling.NewPod(pod))
		return
	}
	old, changed := p.Pod, reparsed(p.Pod, pod)
	event := scheduling.Event{Kind: scheduling.TargetPod, Action: scheduling.PodUpdate(old, changed), OldPod: old, NewPod: changed}
	if p.place == inFlight { // it comes back in its new form
		q.miss(event)
		return
	}
	q.nominees.update(old, changed)
	if p.place != unschedulable {
		p.Pod = changed
		q.heap(p.place).fix(p)
		return
	}
	key := q.waitingKey(p)
	p.Pod = changed
	if s := q.worth(p, event); s != stay {
		q.leaveWaiting(key, p)
		q.requeue(p, s, eventLabel(event))
	}
}

// remove lets go of a pod that is gone or on a node.
func (q *queue) remove(pod *scheduling.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.nominees.remove(pod.UID)
	if p := q.pods[key(pod)]; p != nil && p.UID == pod.UID {
		q.take(p)
		delete(q.pods, p.key())
		p.gone = true // should it be in flight, it must not come back
	}
}

// pop waits for the pod that is to be tried next. It is in flight until landed or putBack. nil: the queue is closed.
func (q *queue) pop() *queuedPod {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if q.closed {
			return nil
		}
		q.endBackoffs(time.Now())
		var p *queuedPod
		switch {
		case q.active.Len() > 0:
			p = q.active.pop()
		case q.backoff.Len() > 0: // better early than idle
			p = q.backoff.pop()
			q.metrics.came(activeQueue, poppedFromBackoff)
		default:
			q.wakeForErrors()
			q.some.Wait()
			continue
		}
		p.place = inFlight
		p.attempts++
		if p.tried = time.Now(); p.attempts == 1 {
			p.first = p.tried
		}
		q.flying, q.missed, q.missedAll = p, nil, false
		return p
	}
}

// wakeForErrors has pop look again when the first pod may be tried whose last attempt failed by an error.
func (q *queue) wakeForErrors() {
	if q.errorBackoff.Len() == 0 {
		return
	}
	wait := time.Until(q.backoffEnds(q.errorBackoff.pods[0]).Add(backoffWindow))
	if q.timer != nil {
		q.timer.Reset(wait)
		return
	}
	q.timer = time.AfterFunc(wait, func() {
		q.mu.Lock() // pop holds it until it waits
		defer q.mu.Unlock()
		q.some.Broadcast()
	})
}

// landed says that the pod in flight need not be tried again: it has a node, or is gone.
func (q *queue) landed(p *queuedPod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.land(p)
	if q.pods[p.key()] == p {
		delete(q.pods, p.key())
	}
}

func (q *queue) land(p *queuedPod) {
	if q.flying == p {
		q.flying, q.missed, q.missedAll = nil, nil, false
	}
	p.place = nowhere
}

// putBack takes a pod back that could not be scheduled. changed is the pod as it is now, refusedBy who refused it, nobody if it was an error,
// nominated the node that it waits for room on, if any.
func (q *queue) putBack(p *queuedPod, changed *scheduling.Pod, refusedBy pluginSet, nominated string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	missed, missedAll := q.missed, q.missedAll
	if q.flying != p { // it was on its way to a node; all that it can wait for is time
		missed, missedAll = nil, false
	}
	q.land(p)
	if other := q.pods[p.key()]; p.gone || other != nil && other != p {
		return // or it was taken in again meanwhile
	}
	q.pods[p.key()] = p
	q.nominees.set(changed, nominated)
	p.Pod, p.refusedBy, p.gate, p.since, p.backoffUntil, p.flushed = changed, refusedBy, 0, time.Now(), time.Time{}, time.Time{}
	if refusedBy == 0 {
		p.errors++
		q.requeue(p, afterBackoff, attemptFailed)
		return
	}
	p.unschedulable++
	p.errors = 0
	s := stay
	if missedAll {
		s = afterBackoff
	}
	for i := 0; i < len(missed) && s == stay; i++ {
		s = q.worth(p, missed[i])
	}
	q.requeue(p, s, attemptFailed)
}

// close ends pop.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	if q.timer != nil {
		q.timer.Stop()
	}
	q.some.Broadcast()
}
