package scheduler

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/scheduling"
)

const (
	// maxUnschedulable is how long a pod stays unschedulable before it is retried without an event that may help.
	maxUnschedulable = 5 * time.Minute
	// flushPeriod is how often the queue checks for such pods.
	flushPeriod = 30 * time.Second
	// backoffWindow is the precision of back-offs: pods whose back-offs end in the same window are ordered as if they ended together.
	backoffWindow = time.Second
	// maxInFlightEvents is how many events are kept while a pod is in flight. After more, any event may have happened.
	maxInFlightEvents = 10000
)

// place is where in the queue a pod is.
type place int

const (
	nowhere place = iota
	active
	backoff
	errorBackoff  // its last attempt failed with an error
	unschedulable // its last attempt found no node, or it is gated
	inFlight      // being scheduled
)

func (p place) String() string {
	return [...]string{"nowhere", "active", "back-off", "error back-off", "unschedulable", "in flight"}[p]
}

// queuedPod is a pod in the queue. Only the queue, under its lock, and the cycle that a pod is in flight in may access it.
type queuedPod struct {
	*scheduling.Pod
	place place
	index int // in its heap

	addedAt       time.Time // when it was added or requeued
	firstAttempt  time.Time // when the first attempt began
	lastAttempt   time.Time // when the current or last attempt began
	attempts      int
	unschedulable int       // attempts that found no node
	errors        int       // attempts in a row that failed with an error
	backoffUntil  time.Time // zero if it was not computed yet
	flushedAt     time.Time // when it was last moved out of the unschedulable pods because it had been there too long

	deleted   bool
	refusedBy pluginSet // the plugins that refused it
	gate      pluginSet // the plugin that keeps it from being tried at all
}

func (p *queuedPod) key() types.NamespacedName { return key(p.Pod) }

func key(pod *scheduling.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// queue holds the pods that wait to be scheduled. Active pods are tried next, in the order of the QueueSort plugin. A pod that fits on no node is
// unschedulable until an event that may help, by the hints of the plugins that refused it; then it is active again, after a back-off that doubles with
// every failed attempt. When no pod is active, pods in back-off are tried early. One pod at a time is in flight.
type queue struct {
	profiles       map[string]*profile
	less           func(a, b *queuedPod) bool
	initialBackoff time.Duration
	maxBackoff     time.Duration // 0: no back-off
	maxWait        time.Duration // how long a pod stays unschedulable

	mu     sync.Mutex
	cond   *sync.Cond // signalled when a pod may be tried
	timer  *time.Timer
	closed bool
	pods   map[types.NamespacedName]*queuedPod
	active podHeap
	// backoff and errorBackoff hold pods in back-off, ordered by the window of its end and then as active ones. Pods whose attempt failed with an error
	// are apart, as they are not tried early.
	backoff, errorBackoff podHeap
	waiting               map[waitingKey]map[*queuedPod]struct{} // the unschedulable pods
	inFlight              *queuedPod
	inFlightEvents        []scheduling.Event // what happened since it was popped
	inFlightOverflow      bool               // more than maxInFlightEvents happened, or it was activated
	nominees              nominees
	devices               scheduling.Devices // for hints; may be nil
	metrics               *metrics           // may be nil
}

// waitingKey groups unschedulable pods by the plugins that an event may concern.
type waitingKey struct {
	profile   *profile
	refusedBy pluginSet
	gated     bool
}

func newQueue(profiles map[string]*profile, sort scheduling.QueueSort, initialBackoff, maxBackoff, maxWait time.Duration) *queue {
	q := &queue{profiles: profiles, initialBackoff: initialBackoff, maxBackoff: maxBackoff, maxWait: maxWait, pods: map[types.NamespacedName]*queuedPod{},
		waiting: map[waitingKey]map[*queuedPod]struct{}{}, nominees: newNominees()}
	q.cond = sync.NewCond(&q.mu)
	q.less = func(a, b *queuedPod) bool { return sort.Less(a.Pod, a.addedAt, b.Pod, b.addedAt) }
	q.active.less = q.less
	q.errorBackoff.less = func(a, b *queuedPod) bool { return q.backoffExpiry(a).Before(q.backoffExpiry(b)) }
	q.backoff.less = func(a, b *queuedPod) bool {
		if x, y := q.backoffExpiry(a), q.backoffExpiry(b); !x.Equal(y) {
			return x.Before(y)
		}
		return q.less(a, b)
	}
	return q
}

// add adds a new pod.
func (q *queue) add(pod *scheduling.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.addPod(pod)
}

func (q *queue) addPod(pod *scheduling.Pod) {
	q.nominees.set(pod, pod.Status.NominatedNodeName)
	p := &queuedPod{Pod: pod, addedAt: time.Now()}
	if old := q.pods[p.key()]; old != nil { // of another uid, whose deletion was missed
		q.removeFromPlace(old)
	}
	q.pods[p.key()] = p
	q.makeActive(p, podAdded)
}

// update handles a change of a pending pod.
func (q *queue) update(pod *corev1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.pods[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}]
	if p == nil || p.UID != pod.UID {
		q.addPod(scheduling.NewPod(pod))
		return
	}
	old, changed := p.Pod, reparsed(p.Pod, pod)
	event := scheduling.Event{Kind: scheduling.TargetPod, Action: scheduling.PodUpdate(old, changed), OldPod: old, NewPod: changed, Devices: q.devices}
	if p.place == inFlight { // it is requeued in its new version
		q.recordInFlight(event)
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
	if s := q.isWorthRequeuing(p, event); s != queueSkip {
		q.leaveWaiting(key, p)
		q.requeue(p, s, eventLabel(event))
	}
}

// remove removes a pod that was deleted or bound.
func (q *queue) remove(pod *scheduling.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.nominees.remove(pod.UID)
	if p := q.pods[key(pod)]; p != nil && p.UID == pod.UID {
		q.removeFromPlace(p)
		delete(q.pods, p.key())
		p.deleted = true // if it is in flight, it must not be requeued
	}
}

// pop waits for the next pod to try. It is in flight until done or addUnschedulable. nil: the queue is closed.
func (q *queue) pop() *queuedPod {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if q.closed {
			return nil
		}
		q.flushBackoff(time.Now())
		var p *queuedPod
		switch {
		case q.active.Len() > 0:
			p = q.active.pop()
		case q.backoff.Len() > 0: // better early than idle
			p = q.backoff.pop()
			q.metrics.podQueued(activeQueue, poppedFromBackoff)
		default:
			q.wakeForErrors()
			q.cond.Wait()
			continue
		}
		p.place = inFlight
		p.attempts++
		if p.lastAttempt = time.Now(); p.attempts == 1 {
			p.firstAttempt = p.lastAttempt
		}
		q.inFlight, q.inFlightEvents, q.inFlightOverflow = p, nil, false
		return p
	}
}

// wakeForErrors wakes pop when the back-off of the first pod whose last attempt failed with an error ends.
func (q *queue) wakeForErrors() {
	if q.errorBackoff.Len() == 0 {
		return
	}
	wait := time.Until(q.backoffExpiry(q.errorBackoff.pods[0]).Add(backoffWindow))
	if q.timer != nil {
		q.timer.Reset(wait)
		return
	}
	q.timer = time.AfterFunc(wait, func() {
		q.mu.Lock() // pop holds the lock until it waits
		defer q.mu.Unlock()
		q.cond.Broadcast()
	})
}

// done ends the flight of a pod that need not be tried again: it was bound or deleted.
func (q *queue) done(p *queuedPod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.endFlight(p)
	if q.pods[p.key()] == p {
		delete(q.pods, p.key())
	}
}

func (q *queue) endFlight(p *queuedPod) {
	if q.inFlight == p {
		q.inFlight, q.inFlightEvents, q.inFlightOverflow = nil, nil, false
	}
	p.place = nowhere
}

// addUnschedulable requeues a pod that could not be scheduled. changed is its current version, refusedBy the plugins that refused it, none if it was an
// error, nominated the node that it is nominated for, if any.
func (q *queue) addUnschedulable(p *queuedPod, changed *scheduling.Pod, refusedBy pluginSet, nominated string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	missed, missedAll := q.inFlightEvents, q.inFlightOverflow
	if q.inFlight != p { // it was being bound; only time can help it
		missed, missedAll = nil, false
	}
	q.endFlight(p)
	if other := q.pods[p.key()]; p.deleted || other != nil && other != p {
		return // or it was added again meanwhile
	}
	q.pods[p.key()] = p
	q.nominees.set(changed, nominated)
	p.Pod, p.refusedBy, p.gate, p.addedAt, p.backoffUntil, p.flushedAt = changed, refusedBy, 0, time.Now(), time.Time{}, time.Time{}
	if refusedBy == 0 {
		p.errors++
		q.requeue(p, queueAfterBackoff, attemptFailed)
		return
	}
	p.unschedulable++
	p.errors = 0
	s := queueSkip
	if missedAll {
		s = queueAfterBackoff
	}
	for i := 0; i < len(missed) && s == queueSkip; i++ {
		s = q.isWorthRequeuing(p, missed[i])
	}
	q.requeue(p, s, attemptFailed)
}

// close makes pop return nil.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	if q.timer != nil {
		q.timer.Stop()
	}
	q.cond.Broadcast()
}
