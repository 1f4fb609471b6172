package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxForwards bounds the queries that wait for upstream servers at a time; more are refused, as kubeadm configures CoreDNS.
	maxForwards = 1000
	// forwardTimeout bounds a forwarded query over all tries: the resolvers of most systems wait for five seconds.
	forwardTimeout = 4 * time.Second
	// When no upstream server has answered a query, the shorter unreachableTimeout and unreachableTry apply for unreachablePeriod, so that a
	// machine without network fails fast.
	unreachableTimeout = 800 * time.Millisecond
	unreachableTry     = 300 * time.Millisecond
	unreachablePeriod  = 10 * time.Second
	// minTries is the least number of tries over all upstream servers, if there is time.
	minTries = 4
)

// defaultTryTimeouts lists how long one server is waited for at the first try, the second, and so on; the last applies to all further tries.
var defaultTryTimeouts = []time.Duration{time.Second, 1500 * time.Millisecond}

// forwarder forwards queries to upstream servers and caches their responses.
type forwarder struct {
	resolvers        *resolvers
	cache            *responseCache
	log              *slog.Logger
	warnedAt         atomic.Int64 // when it was last logged that no server answers, in Unix nanoseconds
	unreachableUntil atomic.Int64 // until when the shorter timeouts apply, in Unix nanoseconds
	counts           forwardCounts
	slots            chan struct{} // holds one element for each query in flight, maxForwards at most
	tryTimeouts      []time.Duration
	timeout          time.Duration
	// preferred is the index of the server that is asked first: the one that answered last.
	preferred atomic.Int32

	mu       sync.Mutex
	inflight map[string]*inflightQuery
}

// inflightQuery is a query that upstream servers have not answered yet. Further queries with the same question wait for the same response;
// so do those that come back to this server from an upstream server that forwards to it, which ends such loops.
type inflightQuery struct {
	done     chan struct{}
	response *response // nil if no server answered
}

func newForwarder(r *resolvers, log *slog.Logger) *forwarder {
	return &forwarder{
		resolvers: r, log: log, cache: newResponseCache(cacheBudget), tryTimeouts: defaultTryTimeouts, timeout: forwardTimeout,
		slots: make(chan struct{}, maxForwards), inflight: map[string]*inflightQuery{},
	}
}

// key appends the cache key of a query to buffer: name, type and the flags that change the response.
func (q *query) key(buffer []byte) []byte {
	var bits byte
	if q.dnssec {
		bits |= 1
	}
	if q.flags&flagUnchecked != 0 {
		bits |= 2
	}
	return append(binary.BigEndian.AppendUint16(append(buffer, q.name...), q.qtype), bits)
}

// fromCache writes the answer from the cache; it returns nil if it is not cached.
func (f *forwarder) fromCache(q *query, dst []byte, m *counts) []byte {
	var buffer [maxName + 3]byte
	now := time.Now()
	r := f.cache.get(q.key(buffer[:0]), now)
	if r == nil {
		m.misses.Add(1)
		return nil
	}
	if r.denial {
		m.denials.Add(1)
	} else {
		m.hits.Add(1)
	}
	return r.write(q, dst, now)
}

// answer forwards a query and writes the response, or SERVFAIL if no server answered.
func (f *forwarder) answer(ctx context.Context, q *query, dst []byte) []byte {
	r := f.ask(ctx, q)
	if r == nil {
		return q.refuse(dst, rcodeServerFailure)
	}
	return r.write(q, dst, time.Now())
}

// answers forwards a query and returns the answer section's records and their number, for a message in which the queried name ends at offset at.
func (f *forwarder) answers(ctx context.Context, q *query, at int) (records []byte, count uint16) {
	r := f.ask(ctx, q)
	if r == nil || r.rcode() != rcodeSuccess {
		return nil, 0
	}
	in := &reader{msg: r.write(q, nil, time.Now())}
	in.skipQuestion()
	return in.answers(0xC000 | uint16(at-len(q.name)))
}

// ask returns the response of the upstream servers, of the same query in flight, or of the cache. It returns nil if no server answered.
func (f *forwarder) ask(ctx context.Context, q *query) *response {
	key := string(q.key(nil))
	f.mu.Lock()
	if one := f.inflight[key]; one != nil {
		f.mu.Unlock()
		select {
		case <-one.done:
			return one.response
		case <-ctx.Done():
			return nil
		}
	}
	if r := f.cache.get([]byte(key), time.Now()); r != nil { // the same query was answered meanwhile
		f.mu.Unlock()
		return r
	}
	one := &inflightQuery{done: make(chan struct{})}
	f.inflight[key] = one
	f.mu.Unlock()
	one.response = f.askOthers(ctx, q)
	f.cache.put(key, one.response.orFailure(q))
	f.mu.Lock()
	delete(f.inflight, key)
	f.mu.Unlock()
	close(one.done)
	return one.response
}

// orFailure returns the response to cache: r itself or, if r is nil or a SERVFAIL, a SERVFAIL that is cached for servfailTTL.
func (r *response) orFailure(q *query) *response {
	if r != nil && r.rcode() != rcodeServerFailure {
		return r
	}
	now := time.Now()
	plain := &query{question: q.question}
	plain.maxSize = maxMessage
	return &response{msg: plain.refuse(nil, rcodeServerFailure), receivedAt: now, expires: now.Add(servfailTTL), denial: true}
}

// askOthers asks one upstream server after the other until one answers with NOERROR or NXDOMAIN. It returns the last response otherwise, or
// nil if there was none.
func (f *forwarder) askOthers(ctx context.Context, q *query) *response {
	timeout, tries := f.timeout, f.tryTimeouts
	if time.Now().UnixNano() < f.unreachableUntil.Load() {
		timeout, tries = min(timeout, unreachableTimeout), []time.Duration{min(tries[0], unreachableTry)}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	servers, problem := f.resolvers.all(time.Now())
	if len(servers) == 0 {
		f.warn(problem)
		return nil
	}
	first := int(f.preferred.Load())
	var last *response
	for i := range max(len(servers), minTries) {
		which := (first + i) % len(servers)
		r, err := f.exchange(ctx, servers[which], q, tries[min(i, len(tries)-1)])
		if err != nil && errors.Is(ctx.Err(), context.Canceled) {
			return nil // this server is shutting down
		}
		f.counts.count(servers[which], r, err)
		if err != nil {
			problem = err
			f.preferred.CompareAndSwap(int32(which), int32((which+1)%len(servers)))
			if ctx.Err() != nil {
				break
			}
			continue
		}
		last = r
		f.unreachableUntil.Store(0)
		switch r.rcode() {
		case rcodeSuccess, rcodeNameError:
			f.preferred.Store(int32(which))
			return r
		}
		if i+1 >= len(servers) {
			return last // all servers have been asked
		}
	}
	if last == nil {
		f.unreachableUntil.Store(time.Now().Add(unreachablePeriod).UnixNano())
		f.warn(problem)
	}
	return last
}

// warnInterval is the least time between two log lines about upstream servers that do not answer.
const warnInterval = time.Minute

func (f *forwarder) warn(problem error) {
	last, now := f.warnedAt.Load(), time.Now()
	if now.Sub(time.Unix(0, last)) >= warnInterval && f.warnedAt.CompareAndSwap(last, now.UnixNano()) {
		f.log.Warn("failed to forward a DNS query: no upstream server answers", "error", problem)
	}
}

// ask returns the message that is sent to an upstream server.
func (q *query) ask(id uint16, edns bool) []byte {
	msg := binary.BigEndian.AppendUint16(make([]byte, 0, headerSize+len(q.question)+optSize), id)
	msg = binary.BigEndian.AppendUint16(msg, flagRecursion|q.flags&flagUnchecked|1<<5*b2u(q.dnssec))
	msg = append(msg, 0, 1, 0, 0, 0, 0, 0, byte(b2u(edns)))
	msg = append(msg, q.question...)
	if edns {
		msg = q.appendOPT(msg, 0)
	}
	return msg
}

func b2u(b bool) uint16 {
	if b {
		return 1
	}
	return 0
}

// sameQuestion reports whether a message is the response to a query sent with an id; servers may change the case of letters.
func (q *query) sameQuestion(msg []byte, id uint16) bool {
	if len(msg) < headerSize+len(q.question) || binary.BigEndian.Uint16(msg) != id || binary.BigEndian.Uint16(msg[2:])&flagResponse == 0 ||
		binary.BigEndian.Uint16(msg[4:]) != 1 {
		return false
	}
	var name [maxName]byte
	n := copy(name[:], msg[headerSize:headerSize+len(q.name)])
	lower(name[:n])
	end := headerSize + len(q.name)
	return string(name[:n]) == string(q.name) && binary.BigEndian.Uint16(msg[end:]) == q.qtype && binary.BigEndian.Uint16(msg[end+2:]) == q.qclass
}

// isSelf returns a function that reports whether an address is this server's, or that of the Service in front of it.
func isSelf(listen []netip.AddrPort, z *zone) func(netip.AddrPort) bool {
	return func(server netip.AddrPort) bool {
		for _, l := range listen {
			if l == server {
				return true
			}
		}
		addrs, isService := z.server()
		if !isService || server.Port() != dnsPort {
			return false
		}
		for _, addr := range addrs {
			if addr == server.Addr().Unmap() {
				return true
			}
		}
		return false
	}
}
