package dns

import (
	"encoding/binary"
	"sync"
	"time"
)

// What is remembered of others' answers: for how long at most, as kubeadm has CoreDNS do it, and how much.
const (
	maxRemember   = 30 * time.Second
	failureMemory = time.Second // RFC 9520
	maxRemembered = 4 << 20     // bytes
)

// response is an answer of another server, without the record that says what that server understands.
type response struct {
	msg     []byte
	ttls    []uint16 // where each record says how long it may be kept
	at      time.Time
	expires time.Time
	denial  bool

	key          string
	newer, older *response // in the cache
}

// newResponse takes a message apart. at is when it came.
func newResponse(msg []byte, at time.Time) (*response, error) {
	if len(msg) < headerSize || binary.BigEndian.Uint16(msg[2:])&flagResponse == 0 || binary.BigEndian.Uint16(msg[4:]) != 1 {
		return nil, errMessage
	}
	r := &response{msg: msg, at: at}
	end, err := skipName(msg, headerSize)
	if err != nil || end+4 > len(msg) {
		return nil, errMessage
	}
	place := end + 4
	keep, negative := maxRemember, time.Duration(0)
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
			if most := uint32(maxRemember / time.Second); rr.ttl > most { // clients are to remember no longer either
				rr.ttl = most
				binary.BigEndian.PutUint32(msg[rr.data-6:], rr.ttl)
			}
			r.ttls = append(r.ttls, uint16(rr.data-6))
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

// cutOPT cuts the message at the OPT record. Were it not the last, the rest of that section goes too.
func (r *response) cutOPT(section, i, count int, opt record) {
	r.msg = r.msg[:opt.begin]
	binary.BigEndian.PutUint16(r.msg[6+2*section:], uint16(i))
	for later := section + 1; later < 3; later++ {
		binary.BigEndian.PutUint16(r.msg[6+2*later:], 0)
	}
}

// finish works out for how long a response may be remembered (RFC 2308 for those that deny something).
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
	r.expires = r.at.Add(keep)
	return r
}

func (r *response) rcode() uint16 { return binary.BigEndian.Uint16(r.msg[2:]) & 0xF }

// flags of others' answers that are passed on: recursion available, authentic data, the code.
const passedFlags = 1<<7 | 1<<5 | 0xF

// write writes the response as the answer to a query about the same name.
func (r *response) write(q *query, dst []byte, now time.Time) []byte {
	flags := binary.BigEndian.Uint16(r.msg[2:]) & (passedFlags | flagTruncated)
	if !q.dnssec && q.flags&(1<<5) == 0 {
		flags &^= 1 << 5 // it did not ask whether the data is authentic
	}
	msg := q.begin(dst, flags&^0xF, flags&0xF)
	body := headerSize + len(q.question)
	if len(r.msg) < body {
		return q.refuse(dst[:0], rcodeServerFailure)
	}
	msg = append(msg, r.msg[body:]...)
	if age := uint32(now.Sub(r.at) / time.Second); age > 0 {
		for _, at := range r.ttls {
			ttl := binary.BigEndian.Uint32(msg[at:])
			binary.BigEndian.PutUint32(msg[at:], ttl-min(age, ttl))
		}
	}
	counts := r.msg[6:]
	return q.count(msg, binary.BigEndian.Uint16(counts), binary.BigEndian.Uint16(counts[2:]), binary.BigEndian.Uint16(counts[4:]))
}

// memory remembers responses, those used last.
type memory struct {
	mu     sync.Mutex
	byKey  map[string]*response
	ends   response // where the ring of them is closed: what is newer than it is the oldest, what is older the newest
	bytes  int
	budget int
}

func newMemory(budget int) *memory {
	m := &memory{byKey: map[string]*response{}, budget: budget}
	m.ends.newer, m.ends.older = &m.ends, &m.ends
	return m
}

// get returns what is known, if it still holds.
func (m *memory) get(key []byte, now time.Time) *response {
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

// put remembers a response under a key, unless it is not to be.
func (m *memory) put(key string, r *response) {
	if !r.expires.After(r.at) || r.cost() > m.budget/16 {
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

// cost is about how many bytes a response takes.
func (r *response) cost() int { return 300 + len(r.key) + cap(r.msg) + 2*cap(r.ttls) }

func (m *memory) link(r *response) {
	r.newer, r.older = &m.ends, m.ends.older
	r.older.newer, m.ends.older = r, r
}

func (m *memory) unlink(r *response) {
	r.newer.older, r.older.newer = r.older, r.newer
}

func (m *memory) drop(r *response) {
	delete(m.byKey, r.key)
	m.bytes -= r.cost()
}

func (m *memory) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.byKey)
}
