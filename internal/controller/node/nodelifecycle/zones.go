package nodelifecycle

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/controller"
	"skiff/internal/controller/node"
)

// labelExcludeDisruption excludes a node from the state of its zone.
const labelExcludeDisruption = "node.kubernetes.io/exclude-disruption"

// state is the health of a zone.
type state int

const (
	initial state = iota // not evaluated yet
	normal
	partialDisruption // a large share of nodes is not ready
	fullDisruption    // no node is ready
)

// zone is a failure domain of the cluster.
type zone struct {
	state  state
	bucket bucket
	queue  []string // nodes to taint, in the order in which they became not ready
}

// zoneCounts counts the nodes of a zone. Excluded nodes are in neither number.
type zoneCounts struct{ ready, notReady int }

// countsOf returns the counts of a zone, and adds the zone if it is new.
func (m *monitor) countsOf(key string, counts map[string]*zoneCounts) *zoneCounts {
	if m.zones[key] == nil {
		m.zones[key] = &zone{bucket: bucket{rate: m.settings.rate}}
	}
	if counts[key] == nil {
		counts[key] = &zoneCounts{}
	}
	return counts[key]
}

// stateOf returns the state of a zone with these counts.
func (s settings) stateOf(t zoneCounts) state {
	switch {
	case t.ready == 0 && t.notReady > 0:
		return fullDisruption
	case t.notReady > 2 && float64(t.notReady)/float64(t.notReady+t.ready) >= s.unhealthyShare:
		return partialDisruption
	}
	return normal
}

// rateIn returns how fast nodes are tainted in a zone of a size and state. A full disruption has the full rate: if other zones are ready, the zone
// has failed, and its pods have to be evicted.
func (s settings) rateIn(size int, in state) float64 {
	switch {
	case in != partialDisruption:
		return s.rate
	case size > s.largeZone:
		return s.secondaryRate
	}
	return 0
}

// updateZones updates the zones; counts has all zones with nodes. It returns true while there are nodes and none is ready: then nothing is evicted.
func (m *monitor) updateZones(counts map[string]*zoneCounts, now time.Time) bool {
	ready, notReady := 0, 0
	for key := range m.zones {
		if t := counts[key]; t == nil {
			delete(m.zones, key)
		} else {
			ready, notReady = ready+t.ready, notReady+t.notReady
		}
	}
	if ready+notReady == 0 {
		return m.taintingStopped // nothing is known
	}
	was := m.taintingStopped
	if m.taintingStopped = ready == 0; m.taintingStopped {
		for _, z := range m.zones {
			z.state = fullDisruption
			z.bucket.setRate(0, now)
		}
		return true
	}
	if was { // some nodes are back: the others may have been cut off for the same reason, so all get a new grace period
		for _, s := range m.nodes {
			s.postedAt = now
		}
	}
	for key, z := range m.zones {
		t := *counts[key]
		if in := m.settings.stateOf(t); was || in != z.state {
			z.state = in
			z.bucket.setRate(m.settings.rateIn(t.ready+t.notReady, in), now)
		}
	}
	return false
}

// setQueue sets the nodes to taint. Those that were queued keep their position.
func (z *zone) setQueue(nodes []string) {
	if len(nodes) == 0 {
		z.queue = nil
		return
	}
	added := make(map[string]bool, len(nodes))
	for _, name := range nodes {
		added[name] = true
	}
	z.queue = slices.DeleteFunc(z.queue, func(name string) bool { return !added[name] })
	for _, name := range z.queue {
		delete(added, name)
	}
	z.queue = append(z.queue, slices.Sorted(maps.Keys(added))...)
}

// nodeTaint is a node to taint now.
type nodeTaint struct {
	zone, node string
	actions    []controller.Action
}

// toTaint removes the nodes that may be tainted now from the queues of their zones.
func (m *monitor) toTaint(get func(name string) *corev1.Node, now time.Time) []nodeTaint {
	m.mu.Lock()
	defer m.mu.Unlock()
	var taints []nodeTaint
	for key, z := range m.zones {
		for len(z.queue) > 0 && z.bucket.take(now) {
			t := nodeTaint{zone: key, node: z.queue[0]}
			z.queue = z.queue[1:]
			n := get(t.node)
			if n == nil || isReady(n) || node.Ready(n) == nil {
				continue // it was deleted, or is ready again
			}
			wanted, opposite := noExecuteFor(node.Ready(n).Status)
			t.actions = node.UpdateTaints(n, []corev1.Taint{wanted}, []corev1.Taint{opposite}, now)
			taints = append(taints, t)
		}
	}
	return taints
}

// requeue queues a node that could not be tainted first, to be tainted at once.
func (m *monitor) requeue(t nodeTaint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if z := m.zones[t.zone]; z != nil && !slices.Contains(z.queue, t.node) {
		z.queue = slices.Insert(z.queue, 0, t.node)
		z.bucket.next = time.Time{}
	}
}

// nextTaint returns when the next node may be tainted, if any is queued.
func (m *monitor) nextTaint(now time.Time) (wait time.Duration, queued bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, z := range m.zones {
		if len(z.queue) == 0 || z.bucket.rate == 0 {
			continue
		}
		if w := z.bucket.next.Sub(now); !queued || w < wait {
			wait, queued = w, true
		}
	}
	return wait, queued
}

// bucket is a rate limiter without bursts.
type bucket struct {
	rate float64   // per second; 0 means never
	next time.Time // when the next is allowed
}

func (b *bucket) take(now time.Time) bool {
	if b.rate == 0 || now.Before(b.next) {
		return false
	}
	b.next = now.Add(b.pause())
	return true
}

func (b *bucket) pause() time.Duration { return time.Duration(float64(time.Second) / b.rate) }

// setRate changes the rate. If the next was not allowed yet, its wait starts anew.
func (b *bucket) setRate(rate float64, now time.Time) {
	if b.rate == rate {
		return
	}
	waits := b.rate == 0 || now.Before(b.next)
	if b.rate = rate; rate > 0 && waits {
		b.next = now.Add(b.pause())
	}
}
