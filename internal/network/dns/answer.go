package dns

import (
	"encoding/binary"
	"math/rand/v2"
)

// ednsSize is the UDP payload size that this server offers in EDNS: the longest query it accepts, and the longest response from upstream servers.
const ednsSize = 1232

// begin appends the header of a response, with the record counts left at 0, and the question. dst must be empty.
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

// count finishes a response: it writes the record counts, adds an OPT record for clients that sent one, and truncates what is too long for the client.
func (q *query) count(msg []byte, answers, authorities, additionals uint16) []byte {
	if q.edns {
		msg = q.appendOPT(msg, 0)
		additionals++
	}
	binary.BigEndian.PutUint16(msg[6:], answers)
	binary.BigEndian.PutUint16(msg[8:], authorities)
	binary.BigEndian.PutUint16(msg[10:], additionals)
	if len(msg) > q.maxSize {
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
	msg = binary.BigEndian.AppendUint16(msg, ednsSize)
	msg = append(msg, byte(rcode>>4), 0)
	msg = binary.BigEndian.AppendUint16(msg, flags)
	return append(msg, 0, 0)
}

// refuse writes a response that has a response code and no records.
func (q *query) refuse(dst []byte, rcode uint16) []byte {
	msg := q.begin(dst, 0, rcode)
	if rcode > 0xF {
		msg = q.appendOPT(msg, rcode)
		msg[11] = 1
		return msg
	}
	return q.count(msg, 0, 0, 0)
}

// write writes a packed answer. Address records are rotated at random, so that clients that use the first one spread their load.
func (q *query) write(dst []byte, a *answer, z *zone) []byte {
	msg := q.begin(dst, flagAuthoritative, rcodeSuccess)
	body := len(msg)
	if a.step > 0 && a.answers > 1 {
		first := a.step * rand.IntN(int(a.answers))
		msg = append(append(msg, a.body[first:]...), a.body[:first]...)
	} else {
		msg = append(msg, a.body...)
	}
	if len(a.domainOffsets) > 0 {
		if domain := q.domain(z); hasUpper(domain) {
			for _, at := range a.domainOffsets {
				copy(msg[body+int(at):], domain)
			}
		}
	}
	return q.count(msg, a.answers, 0, a.additionals)
}

// domain returns the cluster domain as the client spells it, without the root's zero byte.
func (q *query) domain(z *zone) []byte {
	return q.question[q.labelOffsets[q.labels-z.labels] : len(q.name)-1]
}

// The times in the zone's SOA record, in seconds; soaMaxTTL is the longest TTL of the record itself.
const (
	soaRefresh = 7200
	soaRetry   = 1800
	soaExpire  = 86400
	soaMaxTTL  = 300
)

// appendSOA appends the zone's SOA record. Its names are compression pointers to the domain in the question.
func (q *query) appendSOA(msg []byte, z *zone) []byte {
	toDomain := 0xC000 | uint16(headerSize+int(q.labelOffsets[q.labels-z.labels]))
	const server, master = "\x02ns\x03dns", "\x0ahostmaster"
	msg = binary.BigEndian.AppendUint16(msg, toDomain)
	msg = appendRecord(msg, typeSOA, min(z.ttl, soaMaxTTL), len(server)+2+len(master)+2+20)
	msg = binary.BigEndian.AppendUint16(append(msg, server...), toDomain)
	msg = binary.BigEndian.AppendUint16(append(msg, master...), toDomain)
	msg = binary.BigEndian.AppendUint32(msg, uint32(z.changedAt.Load()))
	msg = binary.BigEndian.AppendUint32(msg, soaRefresh)
	msg = binary.BigEndian.AppendUint32(msg, soaRetry)
	msg = binary.BigEndian.AppendUint32(msg, soaExpire)
	return binary.BigEndian.AppendUint32(msg, z.ttl)
}

// deny writes a negative response, NXDOMAIN or NODATA, with the SOA record that lets clients cache it.
func (q *query) deny(dst []byte, z *zone, rcode uint16) []byte {
	msg := q.begin(dst, flagAuthoritative, rcode)
	return q.count(q.appendSOA(msg, z), 0, 1, 0)
}

// truncate cuts a response to the client's maxSize, at the end of a record, and sets the TC bit.
func (q *query) truncate(msg []byte) []byte {
	limit := q.maxSize
	if q.edns {
		limit -= optSize
	}
	at := headerSize + len(q.question)
	var kept [3]uint16
	full := false
	for section := range kept {
		count := binary.BigEndian.Uint16(msg[6+2*section:])
		if section == 2 && q.edns {
			count-- // the OPT record is the last one and is appended again below
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
