package dns

import "encoding/binary"

// query is a parsed DNS query. A receiver reuses one for all its packets.
type query struct {
	id       uint16
	flags    uint16 // the header's flags, as received
	qtype    uint16
	qclass   uint16
	question []byte // the question section, in the client's spelling; a part of the packet
	edns     bool   // the query has an OPT record
	dnssec   bool   // the DO bit: the client understands DNSSEC
	version  byte   // the EDNS version
	maxSize  int    // the longest response that the client accepts

	zone zoneKind // the zone that the answer was counted under

	nameBuffer   [maxName]byte
	name         []byte // the encoded name, in lower case
	labels       int
	labelOffsets [maxLabels]uint8 // where each label begins in name
}

const (
	// minUDPSize is the longest response over UDP to a client without EDNS (RFC 1035).
	minUDPSize = 512
	// maxUDPSize is the longest response over UDP, whatever size the client offers.
	maxUDPSize = 4096
)

// verdict is what to do with a packet.
type verdict int

const (
	verdictAnswer verdict = iota
	verdictDrop
	verdictFormatError    // the packet is not a well-formed query
	verdictNotImplemented // the opcode is not QUERY
	verdictBadVersion     // the EDNS version is not 0
)

// read parses a packet. Over UDP the client's EDNS record sets the size of the response, from minUDPSize to maxUDPSize.
func (q *query) read(packet []byte, udp bool) verdict {
	if len(packet) < headerSize {
		return verdictDrop // there is no whole header to answer
	}
	q.id, q.flags = binary.BigEndian.Uint16(packet), binary.BigEndian.Uint16(packet[2:])
	q.question, q.edns, q.dnssec, q.version, q.maxSize, q.labels = nil, false, false, 0, maxMessage, 0
	if udp {
		q.maxSize = minUDPSize
	}
	if q.flags&flagResponse != 0 {
		return verdictDrop // a response: answering it could make two servers answer each other without end
	}
	if q.flags>>11&0xF != 0 {
		return verdictNotImplemented
	}
	answers, authorities, additionals := binary.BigEndian.Uint16(packet[6:]), binary.BigEndian.Uint16(packet[8:]), binary.BigEndian.Uint16(packet[10:])
	if binary.BigEndian.Uint16(packet[4:]) != 1 || answers > 1 || authorities > 1 || additionals > 2 {
		return verdictFormatError
	}
	end := q.readName(packet)
	if end < 0 || end+4 > len(packet) {
		return verdictFormatError
	}
	q.qtype, q.qclass = binary.BigEndian.Uint16(packet[end:]), binary.BigEndian.Uint16(packet[end+2:])
	q.question = packet[headerSize : end+4]
	if !q.readRecords(packet, end+4, int(answers+authorities), int(additionals), udp) {
		return verdictFormatError
	}
	if q.version != 0 {
		return verdictBadVersion
	}
	return verdictAnswer
}

// readName reads the name of the question and returns where it ends, or -1 if it is malformed. A compression pointer is malformed: nothing
// precedes the name that it could point to.
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
		q.labelOffsets[q.labels] = uint8(n)
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

// readRecords reads the records after the question and takes the EDNS options from the OPT record. It reports whether they are well-formed.
func (q *query) readRecords(packet []byte, at, others, additionals int, udp bool) bool {
	for i := range others + additionals {
		r, err := readRecord(packet, at)
		if err != nil {
			return false
		}
		at = r.end
		if r.kind != typeOPT {
			continue
		}
		if i < others || q.edns || packet[r.begin] != 0 {
			return false // RFC 6891: at most one OPT record, in the additional section, of the root
		}
		q.edns, q.dnssec, q.version = true, r.ttl&(1<<15) != 0, byte(r.ttl>>16)
		if udp {
			q.maxSize = min(max(int(r.class), minUDPSize), maxUDPSize)
		}
	}
	return true
}

// label returns the i-th label of the name, counted from the left.
func (q *query) label(i int) []byte {
	at := int(q.labelOffsets[i])
	return q.name[at+1 : at+1+int(q.name[at])]
}

// labelRange returns the encoded labels from i up to, but not including, to.
func (q *query) labelRange(i, to int) []byte {
	if to >= q.labels {
		return q.name[q.labelOffsets[i] : len(q.name)-1]
	}
	if i >= to {
		return nil
	}
	return q.name[q.labelOffsets[i]:q.labelOffsets[to]]
}
