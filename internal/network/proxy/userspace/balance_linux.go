package userspace

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// balancer selects endpoints round robin, with session affinity if the Port has it.
type balancer struct {
	mu        sync.Mutex
	endpoints []netip.AddrPort
	next      int
	affinity  time.Duration
	clients   map[netip.Addr]affinityRecord
	sweepAt   int           // the number of clients at which expired ones are removed
	room      *atomic.Int64 // how many more clients may be recorded, in all balancers together
}

// affinityRecord is the endpoint of a client, and when it last connected.
type affinityRecord struct {
	endpoint netip.AddrPort
	last     time.Time
}

const minSweep = 64

// set sets the endpoints. Clients of the remaining ones keep theirs.
func (b *balancer) set(endpoints []netip.AddrPort, affinity time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endpoints, b.affinity = endpoints, affinity
	if len(endpoints) > 0 {
		b.next %= len(endpoints)
	}
	if affinity == 0 {
		b.room.Add(int64(len(b.clients)))
		b.clients = nil
	}
}

// close removes all clients, which frees room for others.
func (b *balancer) close() { b.set(nil, 0) }

func (b *balancer) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.endpoints)
}

// pick returns the endpoint for a client. again says that the last one returned did not answer: then it is the next one.
func (b *balancer) pick(client netip.Addr, now time.Time, again bool) (netip.AddrPort, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.endpoints) == 0 {
		return netip.AddrPort{}, false
	}
	if b.affinity > 0 && !again {
		if m, ok := b.clients[client]; ok && now.Sub(m.last) < b.affinity && slices.Contains(b.endpoints, m.endpoint) {
			b.clients[client] = affinityRecord{m.endpoint, now}
			return m.endpoint, true
		}
	}
	endpoint := b.endpoints[b.next]
	b.next = (b.next + 1) % len(b.endpoints)
	if b.affinity > 0 {
		b.record(client, affinityRecord{endpoint, now})
	}
	return endpoint, true
}

// avoid removes the affinity of a client to an endpoint that did not answer.
func (b *balancer) avoid(client netip.Addr, endpoint netip.AddrPort) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m, ok := b.clients[client]; ok && m.endpoint == endpoint {
		delete(b.clients, client)
		b.room.Add(1)
	}
}

func (b *balancer) record(client netip.Addr, m affinityRecord) {
	if _, known := b.clients[client]; !known {
		if len(b.clients) >= max(b.sweepAt, minSweep) || b.room.Load() <= 0 {
			b.sweep(m.last)
		}
		if b.room.Add(-1) < 0 {
			b.room.Add(1)
			return
		}
	}
	if b.clients == nil {
		b.clients = map[netip.Addr]affinityRecord{}
	}
	b.clients[client] = m
}

// sweep removes clients whose affinity has expired.
func (b *balancer) sweep(now time.Time) {
	for client, m := range b.clients {
		if now.Sub(m.last) >= b.affinity {
			delete(b.clients, client)
			b.room.Add(1)
		}
	}
	b.sweepAt = 2 * len(b.clients)
}
