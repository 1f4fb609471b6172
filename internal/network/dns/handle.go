package dns

import (
	"fmt"
	"net/netip"
	"runtime/debug"
)

// task is what resolveAsync must do to answer a query: upstream servers must be asked.
type task struct {
	externalName string // the external name of the Service that was asked for; empty if the query itself is to be forwarded
}

// answer calls handle and recovers from its panics, so that a bug costs one packet its answer and does not end the process.
func (s *Server) answer(q *query, packet []byte, udp bool, dst []byte, m *counts) (msg []byte, todo *task) {
	defer func() {
		if p := recover(); p != nil {
			m.panics.Add(1)
			s.log.Error("recovered from a panic while answering a DNS query", "panic", p, "packet", fmt.Sprintf("%x", packet), "stack", string(debug.Stack()))
			msg, todo = nil, nil
		}
	}()
	return s.handle(q, packet, udp, dst, m)
}

// handle returns the answer to a packet if it takes no waiting, or else the task for resolveAsync. If it returns neither, the packet gets no answer.
func (s *Server) handle(q *query, packet []byte, udp bool, dst []byte, m *counts) (msg []byte, todo *task) {
	switch q.read(packet, udp) {
	case verdictDrop:
		return nil, nil
	case verdictFormatError:
		q.question, q.edns = nil, false
		return m.answered(q, zoneNone, udp, q.refuse(dst, rcodeFormatError)), nil
	case verdictNotImplemented:
		q.question, q.edns = nil, false
		return m.answered(q, zoneNone, udp, q.refuse(dst, rcodeNotImplemented)), nil
	case verdictBadVersion:
		return m.answered(q, zoneNone, udp, q.refuse(dst, rcodeBadVersion)), nil
	}
	if q.qclass != classIN || q.qtype == typeAXFR || q.qtype == typeIXFR || q.qtype == typeOPT {
		return m.answered(q, zoneNone, udp, q.refuse(dst, rcodeRefused)), nil
	}
	if s.zone.inDomain(q) {
		msg, todo = s.inDomain(q, dst)
		if todo == nil {
			m.answered(q, zoneCluster, udp, msg)
		}
		return msg, todo
	}
	if q.qtype == typePTR {
		if addr, ok := reverseAddress(q); ok {
			if msg, ok = s.inReverse(q, addr, dst); ok {
				return m.answered(q, zoneReverse, udp, msg), nil
			}
		}
	}
	if msg = s.forward.fromCache(q, dst, m); msg != nil {
		return m.answered(q, zoneForwarded, udp, msg), nil
	}
	return nil, &forwardTask
}

// forwardTask is the task of every query that is not about the cluster.
var forwardTask task

func (s *Server) inDomain(q *query, dst []byte) ([]byte, *task) {
	if !s.zone.synced.Load() {
		return q.refuse(dst, rcodeServerFailure), nil
	}
	msg, o, externalName := s.zone.lookup(q, dst)
	switch o {
	case outcomeNXDomain:
		return q.deny(dst, s.zone, rcodeNameError), nil
	case outcomeNoData:
		return q.deny(dst, s.zone, rcodeSuccess), nil
	case outcomeExternalName:
		return nil, &task{externalName: externalName}
	}
	return msg, nil
}

func (s *Server) inReverse(q *query, addr netip.Addr, dst []byte) ([]byte, bool) {
	if !s.zone.synced.Load() {
		return q.refuse(dst, rcodeServerFailure), true
	}
	msg, o := s.zone.reverse(q, addr, dst)
	return msg, o == outcomeAnswered
}
