package dns

import (
	"encoding/binary"
	"sync"
	"time"
)

// The bounds of the cache of upstream servers' responses.
const (
	maxCacheTTL = 30 * time.Second // as kubeadm configures CoreDNS
	servfailTTL = time.Second      // RFC 9520
	cacheBudget = 4 << 20          // bytes
)

// response is the response of an upstream server, without its OPT record.
type response struct {
	msg        []byte
	ttlOffsets []uint16 // where the TTL of each record is in msg
	receivedAt time.Time
	expires    time.Time
	denial     bool // the response is NXDOMAIN, NODATA or a failure

	key          string
	newer, older *response // the neighbours in the cache's LRU list
}

// newResponse parses a message that was received at a time, and limits its TTLs to maxCacheTTL. It changes msg.
func newResponse(msg []byte, receivedAt time.Time) (*response, error) {
	if len(msg) < headerSize || binary.BigEndian.Uint16(msg[2:])&flagResponse == 0 || binary.BigEndian.Uint16(msg[4:]) != 1 {
		return nil, errMessage
	}
	r := &response{msg: msg, receivedAt: receivedAt}
	end, err := skipName(msg, headerSize)
	if err != nil || end+4 > len(msg) {
		return nil, errMessage
	}
	place := end + 4
	keep, negative := maxCacheTTL, time.Duration(0)
	hasSOA := false
	for section := range 3 {
		count := int(binary.BigEndian.Uint16(msg[6+2*section:]))
		for i := range count {
			rr, err := readRecord(msg, place)
			if err != nil {
				return nil, err
			}
			if rr.kind == typeOPT {
				r.cutOPT(section, i, count, rr)
				return r.finish(keep, negative, hasSOA), nil
			}
			if most := uint32(maxCacheTTL / time.Second); rr.ttl > most { // clients must not cache it longer either
				rr.ttl = most
				binary.BigEndian.PutUint32(msg[rr.data-6:], rr.ttl)
			}
			r.ttlOffsets = append(r.ttlOffsets, uint16(rr.data-6))
			keep = min(keep, time.Duration(rr.ttl)*time.Second)
			if rr.kind == typeSOA && section == 1 && rr.end-rr.data >= 20 {
				hasSOA = true
				negative = time.Duration(min(rr.ttl, binary.BigEndian.Uint32(msg[rr.end-4:]))) * time.Second
			}
			place = rr.end
		}
	}
	r.msg = msg[:place]
	return r.finish(keep, negative, hasSOA), nil
}

// cutOPT cuts the message at the OPT record. Records after it are lost, if there are any.
func (r *response) cutOPT(section, i, count int, opt record) {
	r.msg = r.msg[:opt.begin]
	binary.BigEndian.PutUint16(r.msg[6+2*section:], uint16(i))
	for later := section + 1; later < 3; later++ {
		binary.BigEndian.PutUint16(r.msg[6+2*later:], 0)
	}
}

// finish sets when the response expires. Negative responses are cached as RFC 2308 says: only with a SOA record, for its minimum TTL.
func (r *response) finish(keep, negative time.Duration, hasSOA bool) *response {
	switch {
	case r.rcode() == rcodeSuccess && binary.BigEndian.Uint16(r.msg[6:]) > 0:
	case r.rcode() == rcodeSuccess || r.rcode() == rcodeNameError:
		r.denial = true
		if !hasSOA {
			negative = 0
		}
		keep = min(keep, negative)
	default:
		keep = 0
	}
	if binary.BigEndian.Uint16(r.msg[2:])&flagTruncated != 0 {
		keep = 0
	}
	r.expires = r.receivedAt.Add(keep)
	return r
}

func (r *response) rcode() uint16 { return binary.BigEndian.Uint16(r.msg[2:]) & 0xF }

// passedFlags are the header bits of upstream responses that clients get: recursion available, authentic data, the response code.
const passedFlags = 1<<7 | 1<<5 | 0xF

// write writes the response as the answer to a query with the same question, with TTLs reduced by its age.
func (r *response) write(q *query, dst []byte, now time.Time) []byte {
	flags := binary.BigEndian.Uint16(r.msg[2:]) & (passedFlags | flagTruncated)
	if !q.dnssec && q.flags&(1<<5) == 0 {
		flags &^= 1 << 5 // the client did not ask for authentic data (RFC 6840)
	}
	msg := q.begin(dst, flags&^0xF, flags&0xF)
	body := headerSize + len(q.question)
	if len(r.msg) < body {
		return q.refuse(dst[:0], rcodeServerFailure)
	}
	msg = append(msg, r.msg[body:]...)
	if age := uint32(now.Sub(r.receivedAt) / time.Second); age > 0 {
		for _, at := range r.ttlOffsets {
			ttl := binary.BigEndian.Uint32(msg[at:])
			binary.BigEndian.PutUint32(msg[at:], ttl-min(age, ttl))
		}
	}
	counts := r.msg[6:]
	return q.count(msg, binary.BigEndian.Uint16(counts), binary.BigEndian.Uint16(counts[2:]), binary.BigEndian.Uint16(counts[4:]))
}

// responseCache is an LRU cache of upstream responses, bounded in bytes.
type responseCache struct {
	mu     sync.Mutex
	byKey  map[string]*response
	ends   response // the sentinel that closes the LRU ring: ends.newer is the least recently used response, ends.older the most recently used
	bytes  int
	budget int
}

func newResponseCache(budget int) *responseCache {
	m := &responseCache{byKey: map[string]*response{}, budget: budget}
	m.ends.newer, m.ends.older = &m.ends, &m.ends
	return m
}

// get returns the cached response for a key; nil if there is none or it has expired.
func (m *responseCache) get(key []byte, now time.Time) *response {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.byKey[string(key)]
	if r == nil {
		return nil
	}
	m.unlink(r)
	if !now.Before(r.expires) {
		m.drop(r)
		return nil
	}
	m.link(r)
	return r
}

// put caches a response under a key, unless it has no lifetime or is too large.
func (m *responseCache) put(key string, r *response) {
	if !r.expires.After(r.receivedAt) || r.cost() > m.budget/16 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if before := m.byKey[key]; before != nil {
		m.unlink(before)
		m.drop(before)
	}
	r.key = key
	m.byKey[key] = r
	m.bytes += r.cost()
	m.link(r)
	for m.bytes > m.budget {
		oldest := m.ends.newer
		m.unlink(oldest)
		m.drop(oldest)
	}
}

// cost returns about how many bytes a response takes.
func (r *response) cost() int { return 300 + len(r.key) + cap(r.msg) + 2*cap(r.ttlOffsets) }

func (m *responseCache) link(r *response) {
	r.newer, r.older = &m.ends, m.ends.older
	r.older.newer, m.ends.older = r, r
}

func (m *responseCache) unlink(r *response) {
	r.newer.older, r.older.newer = r.older, r.newer
}

func (m *responseCache) drop(r *response) {
	delete(m.byKey, r.key)
	m.bytes -= r.cost()
}

func (m *responseCache) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.byKey)
}
