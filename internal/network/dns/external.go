package dns

import (
	"context"
	"encoding/binary"
)

// maxAliases is how many names may stand for each other in a row.
const maxAliases = 10

// appendAlias adds a CNAME record. owner points to its name.
func appendAlias(msg []byte, owner uint16, ttl uint32, target []byte) []byte {
	msg = appendRecord(binary.BigEndian.AppendUint16(msg, owner), typeCNAME, ttl, len(target))
	return append(msg, target...)
}

// alias answers a question about a Service that stands for another name: with that name and, as far as they can be found, its addresses. As with
// CoreDNS, a chain within the cluster that leads nowhere is no answer at all, and one that leads out of it ends with the last name known.
func (s *Server) alias(ctx context.Context, q *query, elsewhere string, dst []byte) []byte {
	msg := q.begin(dst, flagAuthoritative, rcodeSuccess)
	count := uint16(0)
	owner := uint16(toQuestion)
	seen, current := map[string]bool{string(q.name): true}, q.name
	for range maxAliases {
		name, err := encodeName(elsewhere)
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
		case external:
			elsewhere = further
			continue
		case answered:
			r := &reader{msg: part}
			r.skipQuestion()
			records, n := r.answers(owner)
			return q.count(append(msg, records...), count+n, 0, 0)
		}
		break
	}
	return q.deny(dst[:0], s.zone, rcodeSuccess)
}

// below says whether a name is below another, or is it.
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

// about is the same question about another name.
func (q *query) about(name []byte) *query {
	next := &query{flags: q.flags, kind: q.kind, class: q.class, dnssec: q.dnssec, size: maxMessage}
	packet := append(make([]byte, headerSize, headerSize+len(name)+4), name...)
	packet = binary.BigEndian.AppendUint16(packet, q.kind)
	packet = binary.BigEndian.AppendUint16(packet, q.class)
	next.readName(packet)
	next.question = packet[headerSize:]
	return next
}

// reader walks through the records of a message.
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

// answers copies the records of the answer section that follow an alias: addresses, texts and further aliases. owner points to the name that
// the question of this message was about, in the message that they are copied to.
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
