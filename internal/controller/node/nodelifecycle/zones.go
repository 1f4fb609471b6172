package nodelifecycle

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/controller"
	"skiff/internal/controller/node"
)

// labelExcludeDisruption on a node has it not count for the state of its zone.
const labelExcludeDisruption = "node.kubernetes.io/exclude-disruption"

// state is how much of a zone is ready.
type state int

const (
	initial state = iota // nothing is known yet
	normal
	partialDisruption // much is not ready
	fullDisruption    // nothing is ready
)

// zone is a part of the cluster that may fail as a whole.
type zone struct {
	state   state
	bucket  bucket
	waiting []string // nodes to be tainted, in the order in which they were found
}

// tally counts the nodes of a zone. Those that do not count for its state are in neither number.
type tally struct{ ready, notReady int }

// tallyOf finds the tally of a zone, and notes that there is one.
func (m *monitor) tallyOf(key string, counts map[string]*tally) *tally {
	if m.zones[key] == nil {
		m.zones[key] = &zone{bucket: bucket{rate: m.settings.rate}}
	}
	if counts[key] == nil {
		counts[key] = &tally{}
	}
	return counts[key]
}

// stateOf is the state of a zone with so many nodes.
func (s settings) stateOf(t tally) state {
	switch {
	case t.ready == 0 && t.notReady > 0:
		return fullDisruption
	case t.notReady > 2 && float64(t.notReady)/float64(t.notReady+t.ready) >= s.unhealthy:
		return partialDisruption
	}
	return normal
}

// rateIn is how fast nodes are tainted in a zone of a size and state. All of a zone is not ready: if other zones are, it is the zone that failed, and its
// pods have to go.
func (s settings) rateIn(size int, in state) float64 {
	switch {
	case in != partialDisruption:
		return s.rate
	case size > s.large:
		return s.secondaryRate
	}
	return 0
}

// disrupted brings the zones up to date: counts has all that have a node. It returns true while there are nodes, and none of them is ready: then nothing
// is evicted.
func (m *monitor) disrupted(counts map[string]*tally, now time.Time) bool {
	ready, notReady := 0, 0
	for key := range m.zones {
		if t := counts[key]; t == nil {
			delete(m.zones, key)
		} else {
			ready, notReady = ready+t.ready, notReady+t.notReady
		}
	}
	if ready+notReady == 0 {
		return m.stopped // nothing is known
	}
	was := m.stopped
	if m.stopped = ready == 0; m.stopped {
		for _, z := range m.zones {
			z.state = fullDisruption
			z.bucket.swap(0, now)
		}
		return true
	}
	if was { // some are back: of the others as little may have been heard for the same reason, so all have their time again
		for _, s := range m.nodes {
			s.at = now
		}
	}
	for key, z := range m.zones {
		t := *counts[key]
		if in := m.settings.stateOf(t); was || in != z.state {
			z.state = in
			z.bucket.swap(m.settings.rateIn(t.ready+t.notReady, in), now)
		}
	}
	return false
}

// wait has nodes wait for their turn. Those that need not any more leave; the others keep their place.
func (z *zone) wait(nodes []string) {
	if len(nodes) == 0 {
		z.waiting = nil
		return
	}
	fresh := make(map[string]bool, len(nodes))
	for _, name := range nodes {
		fresh[name] = true
	}
	z.waiting = slices.DeleteFunc(z.waiting, func(name string) bool { return !fresh[name] })
	for _, name := range z.waiting {
		delete(fresh, name)
	}
	z.waiting = append(z.waiting, slices.Sorted(maps.Keys(fresh))...)
}

// turn is a node whose turn it is to be tainted.
type turn struct {
	zone, node string
	actions    []controller.Action
}

// toTaint takes the nodes whose turn it is out of the queues of their zones.
func (m *monitor) toTaint(get func(name string) *corev1.Node, now time.Time) []turn {
	m.mu.Lock()
	defer m.mu.Unlock()
	var turns []turn
	for key, z := range m.zones {
		for len(z.waiting) > 0 && z.bucket.take(now) {
			t := turn{zone: key, node: z.waiting[0]}
			z.waiting = z.waiting[1:]
			n := get(t.node)
			if n == nil || isReady(n) || node.Ready(n) == nil {
				continue // it is gone, or well again
			}
			wanted, opposite := noExecuteFor(node.Ready(n).Status)
			t.actions = node.Retaint(n, []corev1.Taint{wanted}, []corev1.Taint{opposite}, now)
			turns = append(turns, t)
		}
	}
	return turns
}

// putBack has a node that could not be tainted be the next.
func (m *monitor) putBack(t turn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if z := m.zones[t.zone]; z != nil && !slices.Contains(z.waiting, t.node) {
		z.waiting = slices.Insert(z.waiting, 0, t.node)
		z.bucket.next = time.Time{}
	}
}

// nextTaint says when the next node's turn comes, if any waits.
func (m *monitor) nextTaint(now time.Time) (wait time.Duration, waits bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, z := range m.zones {
		if len(z.waiting) == 0 || z.bucket.rate == 0 {
			continue
		}
		if w := z.bucket.next.Sub(now); !waits || w < wait {
			wait, waits = w, true
		}
	}
	return wait, waits
}

// bucket lets something happen at a rate, and never two at once.
type bucket struct {
	rate float64   // per second; 0 is never
	next time.Time // when it may happen again
}

func (b *bucket) take(now time.Time) bool {
	if b.rate == 0 || now.Before(b.next) {
		return false
	}
	b.next = now.Add(b.pause())
	return true
}

func (b *bucket) pause() time.Duration { return time.Duration(float64(time.Second) / b.rate) }

// swap changes the rate. Who had to wait has to wait anew.
func (b *bucket) swap(rate float64, now time.Time) {
	if b.rate == rate {
		return
	}
	waits := b.rate == 0 || now.Before(b.next)
	if b.rate = rate; rate > 0 && waits {
		b.next = now.Add(b.pause())
	}
}
