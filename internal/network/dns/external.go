package dns

import (
	"context"
	"encoding/binary"
)

// maxAliases bounds the length of a chain of CNAME records.
const maxAliases = 10

// appendAlias appends a CNAME record. owner is the compression pointer to its name.
func appendAlias(msg []byte, owner uint16, ttl uint32, target []byte) []byte {
	msg = appendRecord(binary.BigEndian.AppendUint16(msg, owner), typeCNAME, ttl, len(target))
	return append(msg, target...)
}

// alias answers a query about an ExternalName Service with a CNAME record of its external name and the records found for that name. As with
// CoreDNS, a chain within the cluster that leads to no record is answered with NODATA, and one that leads out of the cluster ends with the
// last name that could be resolved.
func (s *Server) alias(ctx context.Context, q *query, externalName string, dst []byte) []byte {
	msg := q.begin(dst, flagAuthoritative, rcodeSuccess)
	count := uint16(0)
	owner := uint16(toQuestion)
	seen, current := map[string]bool{string(q.name): true}, q.name
	for range maxAliases {
		name, err := encodeName(externalName)
		if err != nil || seen[string(name)] || below(name, current) {
			return q.deny(dst[:0], s.zone, rcodeSuccess)
		}
		seen[string(name)], current = true, name
		msg = appendAlias(msg, owner, s.zone.ttl, name)
		owner = 0xC000 | uint16(len(msg)-len(name))
		count++
		next := q.about(name)
		if !s.zone.inDomain(next) {
			more, n := s.forward.answers(ctx, next, len(msg))
			return q.count(append(msg, more...), count+n, 0, 0)
		}
		part, o, further := s.zone.lookup(next, nil)
		switch o {
		case outcomeExternalName:
			externalName = further
			continue
		case outcomeAnswered:
			r := &reader{msg: part}
			r.skipQuestion()
			records, n := r.answers(owner)
			return q.count(append(msg, records...), count+n, 0, 0)
		}
		break
	}
	return q.deny(dst[:0], s.zone, rcodeSuccess)
}

// below reports whether a name is another one or below it.
func below(name, other []byte) bool {
	for at := 0; len(name)-at >= len(other); at += 1 + int(name[at]) {
		if string(name[at:]) == string(other) {
			return true
		}
		if name[at] == 0 {
			break
		}
	}
	return false
}

// about returns a query of the same type about another name.
func (q *query) about(name []byte) *query {
	next := &query{flags: q.flags, qtype: q.qtype, qclass: q.qclass, dnssec: q.dnssec, maxSize: maxMessage}
	packet := append(make([]byte, headerSize, headerSize+len(name)+4), name...)
	packet = binary.BigEndian.AppendUint16(packet, q.qtype)
	packet = binary.BigEndian.AppendUint16(packet, q.qclass)
	next.readName(packet)
	next.question = packet[headerSize:]
	return next
}

// reader reads the records of a message one after the other.
type reader struct {
	msg []byte
	at  int
}

func (r *reader) skipQuestion() {
	r.at = headerSize
	for range binary.BigEndian.Uint16(r.msg[4:]) {
		end, err := skipName(r.msg, r.at)
		if err != nil || end+4 > len(r.msg) {
			r.at = len(r.msg)
			return
		}
		r.at = end + 4
	}
}

// answers copies the A, AAAA, TXT and CNAME records of the answer section into a response whose CNAME record leads to this message's
// question. owner is the compression pointer, in that response, to the name of the question.
func (r *reader) answers(owner uint16) (out []byte, count uint16) {
	for range binary.BigEndian.Uint16(r.msg[6:]) {
		rr, err := readRecord(r.msg, r.at)
		if err != nil {
			return out, count
		}
		r.at = rr.end
		var data []byte
		switch rr.kind {
		case typeA, typeAAAA, typeTXT:
			data = r.msg[rr.data:rr.end]
		case typeCNAME:
			if data, err = expandName(nil, r.msg, rr.data); err != nil {
				return out, count
			}
		default:
			continue
		}
		if binary.BigEndian.Uint16(r.msg[rr.begin:]) == toQuestion {
			out = binary.BigEndian.AppendUint16(out, owner)
		} else if out, err = expandName(out, r.msg, rr.begin); err != nil {
			return nil, 0
		}
		out = append(appendRecord(out, rr.kind, rr.ttl, len(data)), data...)
		count++
	}
	return out, count
}
