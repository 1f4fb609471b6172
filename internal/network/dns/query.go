package dns

import "encoding/binary"

// query is a question as it came in. It is used for one question after the other.
type query struct {
	id       uint16
	flags    uint16 // as they came in
	kind     uint16
	class    uint16
	question []byte // the question section, in the client's spelling; part of the packet
	edns     bool
	dnssec   bool // the client understands DNSSEC
	version  byte // of EDNS
	size     int  // how long an answer may be

	zone zoneKind // whose names it is about

	nameBuffer [maxName]byte
	name       []byte // in lower case, encoded
	labels     int
	at         [maxLabels]uint8 // where each label begins in name
}

const (
	// minSize is how long an answer over UDP may be that the client says nothing about.
	minSize = 512
	// maxSize is how long an answer over UDP is at most, whatever the client says.
	maxSize = 4096
)

// verdict is what to do with a packet.
type verdict int

const (
	answerIt verdict = iota
	dropIt
	refuseFormat         // it is not a query that can be read
	refuseNotImplemented // it asks for something else than an answer
	refuseVersion
)

// read takes a packet apart. Over UDP the client decides how long an answer may be, within bounds.
func (q *query) read(packet []byte, udp bool) verdict {
	if len(packet) < headerSize {
		return dropIt // nobody to answer: there is no whole header
	}
	q.id, q.flags = binary.BigEndian.Uint16(packet), binary.BigEndian.Uint16(packet[2:])
	q.question, q.edns, q.dnssec, q.version, q.size, q.labels = nil, false, false, 0, maxMessage, 0
	if udp {
		q.size = minSize
	}
	if q.flags&flagResponse != 0 {
		return dropIt // two servers shall not talk to each other for ever
	}
	if q.flags>>11&0xF != 0 {
		return refuseNotImplemented
	}
	answers, authorities, more := binary.BigEndian.Uint16(packet[6:]), binary.BigEndian.Uint16(packet[8:]), binary.BigEndian.Uint16(packet[10:])
	if binary.BigEndian.Uint16(packet[4:]) != 1 || answers > 1 || authorities > 1 || more > 2 {
		return refuseFormat
	}
	end := q.readName(packet)
	if end < 0 || end+4 > len(packet) {
		return refuseFormat
	}
	q.kind, q.class = binary.BigEndian.Uint16(packet[end:]), binary.BigEndian.Uint16(packet[end+2:])
	q.question = packet[headerSize : end+4]
	if !q.readRecords(packet, end+4, int(answers+authorities), int(more), udp) {
		return refuseFormat
	}
	if q.version != 0 {
		return refuseVersion
	}
	return answerIt
}

// readName reads the name of the question and returns where it ends, or -1. Nothing precedes it that it could point to.
func (q *query) readName(packet []byte) int {
	at, n := headerSize, 0
	for at < len(packet) {
		size := int(packet[at])
		if size > maxLabel || at+1+size > len(packet) || n+1+size > maxName || (size > 0 && q.labels == maxLabels) {
			return -1
		}
		q.nameBuffer[n] = byte(size)
		if size == 0 {
			q.name = q.nameBuffer[:n+1]
			return at + 1
		}
		q.at[q.labels] = uint8(n)
		q.labels++
		for i, c := range packet[at+1 : at+1+size] {
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			q.nameBuffer[n+1+i] = c
		}
		n += 1 + size
		at += 1 + size
	}
	return -1
}

// readRecords looks for the record in which a client says what it understands.
func (q *query) readRecords(packet []byte, at, others, more int, udp bool) bool {
	for i := range others + more {
		r, err := readRecord(packet, at)
		if err != nil {
			return false
		}
		at = r.end
		if r.kind != typeOPT {
			continue
		}
		if i < others || q.edns || packet[r.begin] != 0 {
			return false // there is one at most, in the last section, and the root's
		}
		q.edns, q.dnssec, q.version = true, r.ttl&(1<<15) != 0, byte(r.ttl>>16)
		if udp {
			q.size = min(max(int(r.class), minSize), maxSize)
		}
	}
	return true
}

// label returns a label of the name; labels count from the left.
func (q *query) label(i int) []byte {
	at := int(q.at[i])
	return q.name[at+1 : at+1+int(q.name[at])]
}

// from returns the encoded labels from one on, up to another.
func (q *query) from(i, to int) []byte {
	if to >= q.labels {
		return q.name[q.at[i] : len(q.name)-1]
	}
	if i >= to {
		return nil
	}
	return q.name[q.at[i]:q.at[to]]
}
