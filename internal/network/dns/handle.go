package dns

import (
	"fmt"
	"net/netip"
	"runtime/debug"
)

// task is what remains to be done to answer a query: others must be asked.
type task struct {
	elsewhere string // the name that the one asked for stands for; empty if that one is to be asked for
}

// answer is handle, which must never panic: should it, that costs one packet its answer and not the process its life.
func (s *Server) answer(q *query, packet []byte, udp bool, dst []byte, m *counts) (msg []byte, todo *task) {
	defer func() {
		if p := recover(); p != nil {
			m.panics.Add(1)
			s.log.Error("the name server panicked", "panic", p, "packet", fmt.Sprintf("%x", packet), "stack", string(debug.Stack()))
			msg, todo = nil, nil
		}
	}()
	return s.handle(q, packet, udp, dst, m)
}

// handle answers a packet if that takes no waiting. Otherwise it returns no answer and says what is to be done; if there is nothing to do, the packet
// deserves no answer.
func (s *Server) handle(q *query, packet []byte, udp bool, dst []byte, m *counts) (msg []byte, todo *task) {
	switch q.read(packet, udp) {
	case dropIt:
		return nil, nil
	case refuseFormat:
		q.question, q.edns = nil, false
		return m.answered(q, zoneNone, udp, q.refuse(dst, rcodeFormatError)), nil
	case refuseNotImplemented:
		q.question, q.edns = nil, false
		return m.answered(q, zoneNone, udp, q.refuse(dst, rcodeNotImplemented)), nil
	case refuseVersion:
		return m.answered(q, zoneNone, udp, q.refuse(dst, rcodeBadVersion)), nil
	}
	if q.class != classIN || q.kind == typeAXFR || q.kind == typeIXFR || q.kind == typeOPT {
		return m.answered(q, zoneNone, udp, q.refuse(dst, rcodeRefused)), nil
	}
	if s.zone.inDomain(q) {
		msg, todo = s.inDomain(q, dst)
		if todo == nil {
			m.answered(q, zoneCluster, udp, msg)
		}
		return msg, todo
	}
	if q.kind == typePTR {
		if addr, ok := reverseAddress(q); ok {
			if msg, ok = s.inReverse(q, addr, dst); ok {
				return m.answered(q, zoneReverse, udp, msg), nil
			}
		}
	}
	if msg = s.forward.remembered(q, dst, m); msg != nil {
		return m.answered(q, zoneElsewhere, udp, msg), nil
	}
	return nil, &passItOn
}

// passItOn is the task of every question that is not about the cluster.
var passItOn task

func (s *Server) inDomain(q *query, dst []byte) ([]byte, *task) {
	if !s.zone.synced.Load() {
		return q.refuse(dst, rcodeServerFailure), nil
	}
	msg, o, elsewhere := s.zone.lookup(q, dst)
	switch o {
	case noName:
		return q.deny(dst, s.zone, rcodeNameError), nil
	case noRecord:
		return q.deny(dst, s.zone, rcodeSuccess), nil
	case external:
		return nil, &task{elsewhere: elsewhere}
	}
	return msg, nil
}

func (s *Server) inReverse(q *query, addr netip.Addr, dst []byte) ([]byte, bool) {
	if !s.zone.synced.Load() {
		return q.refuse(dst, rcodeServerFailure), true
	}
	msg, o := s.zone.reverse(q, addr, dst)
	return msg, o == answered
}
