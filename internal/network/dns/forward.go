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
	// maxForwards is how many queries may wait for other servers at a time; more are refused, as kubeadm has CoreDNS do it.
	maxForwards = 1000
	// patience is how long other servers have to answer, all together: the clients of most systems wait for five seconds.
	patience = 4 * time.Second
	// When none of them has answered, they have no more than little time for a while: a machine that is cut off shall say so fast.
	littlePatience = 800 * time.Millisecond
	littleTry      = 300 * time.Millisecond
	cutOff         = 10 * time.Second
	// minTries is how many times servers are asked at least, if there is time.
	minTries = 4
)

// defaultTries are how long one server is waited for, the first time, the second, and so on.
var defaultTries = []time.Duration{time.Second, 1500 * time.Millisecond}

// forwarder asks other servers.
type forwarder struct {
	resolvers *resolvers
	memory    *memory
	log       *slog.Logger
	warned    atomic.Int64 // when it was last said that nobody answers
	silence   atomic.Int64 // until when they have little time
	counts    forwardCounts
	places    chan struct{} // one for each query that waits
	tries     []time.Duration
	patience  time.Duration
	// preferred is which server answered last: others are asked when it does not.
	preferred atomic.Int32

	mu      sync.Mutex
	pending map[string]*flight
}

// flight is a question that has been asked and not answered yet. Whoever asks the same waits for the same answer: also this server itself, if
// the one it asks should ask it in turn.
type flight struct {
	done     chan struct{}
	response *response // nil if nobody answered
}

func newForwarder(r *resolvers, log *slog.Logger) *forwarder {
	return &forwarder{resolvers: r, log: log, memory: newMemory(maxRemembered), tries: defaultTries, patience: patience, places: make(chan struct{}, maxForwards), pending: map[string]*flight{}}
}

// key is what makes questions the same.
func (q *query) key(buffer []byte) []byte {
	var bits byte
	if q.dnssec {
		bits |= 1
	}
	if q.flags&flagUnchecked != 0 {
		bits |= 2
	}
	return append(binary.BigEndian.AppendUint16(append(buffer, q.name...), q.kind), bits)
}

// remembered writes the answer if it is known.
func (f *forwarder) remembered(q *query, dst []byte, m *counts) []byte {
	var buffer [maxName + 3]byte
	now := time.Now()
	r := f.memory.get(q.key(buffer[:0]), now)
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

// answer asks others and writes what they say.
func (f *forwarder) answer(ctx context.Context, q *query, dst []byte) []byte {
	r := f.ask(ctx, q)
	if r == nil {
		return q.refuse(dst, rcodeServerFailure)
	}
	return r.write(q, dst, time.Now())
}

// answers are the records that others answer with, for a message in which the name asked for is the last thing before at.
func (f *forwarder) answers(ctx context.Context, q *query, at int) (records []byte, count uint16) {
	r := f.ask(ctx, q)
	if r == nil || r.rcode() != rcodeSuccess {
		return nil, 0
	}
	in := &reader{msg: r.write(q, nil, time.Now())}
	in.skipQuestion()
	return in.answers(0xC000 | uint16(at-len(q.name)))
}

// ask asks others, or waits for somebody who does.
func (f *forwarder) ask(ctx context.Context, q *query) *response {
	key := string(q.key(nil))
	f.mu.Lock()
	if one := f.pending[key]; one != nil {
		f.mu.Unlock()
		select {
		case <-one.done:
			return one.response
		case <-ctx.Done():
			return nil
		}
	}
	if r := f.memory.get([]byte(key), time.Now()); r != nil { // somebody has asked meanwhile
		f.mu.Unlock()
		return r
	}
	one := &flight{done: make(chan struct{})}
	f.pending[key] = one
	f.mu.Unlock()
	one.response = f.askOthers(ctx, q)
	f.memory.put(key, one.response.orFailure(q))
	f.mu.Lock()
	delete(f.pending, key)
	f.mu.Unlock()
	close(one.done)
	return one.response
}

// orFailure is a response, or one that remembers for a moment that there is none.
func (r *response) orFailure(q *query) *response {
	if r != nil && r.rcode() != rcodeServerFailure {
		return r
	}
	now := time.Now()
	plain := &query{question: q.question}
	plain.size = maxMessage
	return &response{msg: plain.refuse(nil, rcodeServerFailure), at: now, expires: now.Add(failureMemory), denial: true}
}

// askOthers asks one server after the other until one gives an answer to go by.
func (f *forwarder) askOthers(ctx context.Context, q *query) *response {
	patience, tries := f.patience, f.tries
	if time.Now().UnixNano() < f.silence.Load() {
		patience, tries = min(patience, littlePatience), []time.Duration{min(tries[0], littleTry)}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
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
			return nil // the server ends
		}
		f.counts.asked(servers[which], r, err)
		if err != nil {
			problem = err
			f.preferred.CompareAndSwap(int32(which), int32((which+1)%len(servers)))
			if ctx.Err() != nil {
				break
			}
			continue
		}
		last = r
		f.silence.Store(0)
		switch r.rcode() {
		case rcodeSuccess, rcodeNameError:
			f.preferred.Store(int32(which))
			return r
		}
		if i+1 >= len(servers) {
			return last // all have been asked, and none knows better
		}
	}
	if last == nil {
		f.silence.Store(time.Now().Add(cutOff).UnixNano())
		f.warn(problem)
	}
	return last
}

// warnAgain is how often it is said that nobody answers.
const warnAgain = time.Minute

func (f *forwarder) warn(problem error) {
	last, now := f.warned.Load(), time.Now()
	if now.Sub(time.Unix(0, last)) >= warnAgain && f.warned.CompareAndSwap(last, now.UnixNano()) {
		f.log.Warn("no other name server answers questions about names outside the cluster", "error", problem)
	}
}

// ask writes the query that is sent to another server.
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

// sameQuestion says whether a message is an answer to a query; servers may change the case of letters.
func (q *query) sameQuestion(msg []byte, id uint16) bool {
	if len(msg) < headerSize+len(q.question) || binary.BigEndian.Uint16(msg) != id || binary.BigEndian.Uint16(msg[2:])&flagResponse == 0 ||
		binary.BigEndian.Uint16(msg[4:]) != 1 {
		return false
	}
	var name [maxName]byte
	n := copy(name[:], msg[headerSize:headerSize+len(q.name)])
	lower(name[:n])
	end := headerSize + len(q.name)
	return string(name[:n]) == string(q.name) && binary.BigEndian.Uint16(msg[end:]) == q.kind && binary.BigEndian.Uint16(msg[end+2:]) == q.class
}

// isSelf says whether a server is this one.
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
