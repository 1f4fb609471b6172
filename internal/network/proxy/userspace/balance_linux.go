package userspace

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// balancer goes round endpoints.
type balancer struct {
	mu        sync.Mutex
	endpoints []netip.AddrPort
	next      int
	affinity  time.Duration
	clients   map[netip.Addr]memory
	sweepAt   int           // how many clients there may be before those that were away for too long are removed
	room      *atomic.Int64 // for more clients, in all balancers together
}

// memory is where a client went, and when.
type memory struct {
	endpoint netip.AddrPort
	last     time.Time
}

const firstSweep = 64

// set changes the endpoints. Clients of those that are left stay.
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

// close gives the room for clients back.
func (b *balancer) close() { b.set(nil, 0) }

func (b *balancer) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.endpoints)
}

// pick is the endpoint for a client. again says that the one it was given did not answer: then it is the next one.
func (b *balancer) pick(client netip.Addr, now time.Time, again bool) (netip.AddrPort, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.endpoints) == 0 {
		return netip.AddrPort{}, false
	}
	if b.affinity > 0 && !again {
		if m, ok := b.clients[client]; ok && now.Sub(m.last) < b.affinity && slices.Contains(b.endpoints, m.endpoint) {
			b.clients[client] = memory{m.endpoint, now}
			return m.endpoint, true
		}
	}
	endpoint := b.endpoints[b.next]
	b.next = (b.next + 1) % len(b.endpoints)
	if b.affinity > 0 {
		b.remember(client, memory{endpoint, now})
	}
	return endpoint, true
}

// avoid has a client given another endpoint than this one, which did not answer.
func (b *balancer) avoid(client netip.Addr, endpoint netip.AddrPort) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m, ok := b.clients[client]; ok && m.endpoint == endpoint {
		delete(b.clients, client)
		b.room.Add(1)
	}
}

func (b *balancer) remember(client netip.Addr, m memory) {
	if _, known := b.clients[client]; !known {
		if len(b.clients) >= max(b.sweepAt, firstSweep) || b.room.Load() <= 0 {
			b.sweep(m.last)
		}
		if b.room.Add(-1) < 0 {
			b.room.Add(1)
			return
		}
	}
	if b.clients == nil {
		b.clients = map[netip.Addr]memory{}
	}
	b.clients[client] = m
}

// sweep forgets clients that were away for too long.
func (b *balancer) sweep(now time.Time) {
	for client, m := range b.clients {
		if now.Sub(m.last) >= b.affinity {
			delete(b.clients, client)
			b.room.Add(1)
		}
	}
	b.sweepAt = 2 * len(b.clients)
}
