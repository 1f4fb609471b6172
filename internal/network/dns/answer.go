package dns

import (
	"encoding/binary"
	"math/rand/v2"
)

// ownSize is how long a query may be that this server takes over UDP, and an answer from others.
const ownSize = 1232

// begin writes the header of an answer, without counts, and the question.
func (q *query) begin(dst []byte, flags, rcode uint16) []byte {
	flags |= flagResponse | q.flags&(flagRecursion|flagUnchecked) | rcode&0xF
	dst = binary.BigEndian.AppendUint16(dst, q.id)
	dst = binary.BigEndian.AppendUint16(dst, flags)
	questions := byte(1)
	if q.question == nil {
		questions = 0
	}
	dst = append(dst, 0, questions, 0, 0, 0, 0, 0, 0)
	return append(dst, q.question...)
}

// count writes how many records an answer has, and adds the record that says what this server understands, to clients that sent theirs.
func (q *query) count(msg []byte, answers, authorities, more uint16) []byte {
	if q.edns {
		msg = q.appendOPT(msg, 0)
		more++
	}
	binary.BigEndian.PutUint16(msg[6:], answers)
	binary.BigEndian.PutUint16(msg[8:], authorities)
	binary.BigEndian.PutUint16(msg[10:], more)
	if len(msg) > q.size {
		msg = q.truncate(msg)
	}
	return msg
}

func (q *query) appendOPT(msg []byte, rcode uint16) []byte {
	var flags uint16
	if q.dnssec {
		flags = 1 << 15
	}
	msg = append(msg, 0, 0, typeOPT)
	msg = binary.BigEndian.AppendUint16(msg, ownSize)
	msg = append(msg, byte(rcode>>4), 0)
	msg = binary.BigEndian.AppendUint16(msg, flags)
	return append(msg, 0, 0)
}

// refuse writes an answer that is nothing but a code.
func (q *query) refuse(dst []byte, rcode uint16) []byte {
	msg := q.begin(dst, 0, rcode)
	if rcode > 0xF {
		msg = q.appendOPT(msg, rcode)
		msg[11] = 1
		return msg
	}
	return q.count(msg, 0, 0, 0)
}

// write writes a packed answer. Where order means nothing, another record comes first each time, so that clients that take the first
// share out their load.
func (q *query) write(dst []byte, a *answer, z *zone) []byte {
	msg := q.begin(dst, flagAuthoritative, rcodeSuccess)
	body := len(msg)
	if a.step > 0 && a.answers > 1 {
		first := a.step * rand.IntN(int(a.answers))
		msg = append(append(msg, a.body[first:]...), a.body[:first]...)
	} else {
		msg = append(msg, a.body...)
	}
	if len(a.spelled) > 0 {
		if domain := q.domain(z); hasUpper(domain) {
			for _, at := range a.spelled {
				copy(msg[body+int(at):], domain)
			}
		}
	}
	return q.count(msg, a.answers, 0, a.more)
}

// domain is the domain as the client spells it, without the root's length.
func (q *query) domain(z *zone) []byte {
	return q.question[q.at[q.labels-z.labels] : len(q.name)-1]
}

// The times in the record of a zone's authority, in seconds, and how long the record may be kept at most.
const (
	soaRefresh = 7200
	soaRetry   = 1800
	soaExpire  = 86400
	soaMaxTTL  = 300
)

// appendSOA adds the record of the zone's authority. Its names point to the domain in the question.
func (q *query) appendSOA(msg []byte, z *zone) []byte {
	toDomain := 0xC000 | uint16(headerSize+int(q.at[q.labels-z.labels]))
	const own, master = "\x02ns\x03dns", "\x0ahostmaster"
	msg = binary.BigEndian.AppendUint16(msg, toDomain)
	msg = appendRecord(msg, typeSOA, min(z.ttl, soaMaxTTL), len(own)+2+len(master)+2+20)
	msg = binary.BigEndian.AppendUint16(append(msg, own...), toDomain)
	msg = binary.BigEndian.AppendUint16(append(msg, master...), toDomain)
	msg = binary.BigEndian.AppendUint32(msg, uint32(z.changed.Load()))
	msg = binary.BigEndian.AppendUint32(msg, soaRefresh)
	msg = binary.BigEndian.AppendUint32(msg, soaRetry)
	msg = binary.BigEndian.AppendUint32(msg, soaExpire)
	return binary.BigEndian.AppendUint32(msg, z.ttl)
}

// deny writes that there is no such name, or no such record of it.
func (q *query) deny(dst []byte, z *zone, rcode uint16) []byte {
	msg := q.begin(dst, flagAuthoritative, rcode)
	return q.count(q.appendSOA(msg, z), 0, 1, 0)
}

// truncate cuts a message to the size that the client takes, at the end of a record, and says so in it.
func (q *query) truncate(msg []byte) []byte {
	limit := q.size
	if q.edns {
		limit -= optSize
	}
	at := headerSize + len(q.question)
	var kept [3]uint16
	full := false
	for section := range kept {
		count := binary.BigEndian.Uint16(msg[6+2*section:])
		if section == 2 && q.edns {
			count-- // the last one
		}
		for range count {
			r, err := readRecord(msg, at)
			if err != nil || r.end > limit {
				full = true
				break
			}
			at = r.end
			kept[section]++
		}
		if full {
			break
		}
	}
	msg = msg[:at]
	msg[2] |= flagTruncated >> 8
	if q.edns {
		msg = q.appendOPT(msg, 0)
		kept[2]++
	}
	for section, n := range kept {
		binary.BigEndian.PutUint16(msg[6+2*section:], n)
	}
	return msg
}
