package transcode

import "errors"

var (
	errMalformed = errors.New("not a protobuf message of this type")
	errTooDeep   = errors.New("messages are nested too deep")
	errTooLarge  = errors.New("message is too large")
)

// scanned is a message with the positions of its fields.
type scanned struct {
	message []byte
	wires   []wire   // by field number
	slots   []slot   // by the index in wires; undefined for fields that the message does not have
	present fieldSet // the fields that the message has
}

// wire describes a field for scan: its encoding, and the index of its slot.
type wire struct {
	form form
	slot uint8
}

type form uint8

const (
	unknown form = iota
	oneVarint
	oneBytes    // length-delimited: a string, bytes or a message
	manyVarints // repeated numbers, packed or not
	manyBytes
	manyEntries // a map: repeated messages with a key and a value
)

// The wire types of the fields of k8s.io/api: VARINT and LEN.
const (
	typeVarint = 0
	typeBytes  = 2
)

// slot is the position of a field's value in its message.
//
// For a field with one value these are the bounds of its last occurrence, without tag and length. For a repeated field they reach from the
// tag of the first occurrence to the end of the last; other fields may be in between.
type slot struct {
	pos, end int32
	n        int32 // number of occurrences
}

// fieldSet has a bit for each field of a struct.
type fieldSet uint64

const maxFields = 64

func (s fieldSet) has(i uint) bool { return s>>(i%maxFields)&1 != 0 }

// scan records the positions of the fields of message[from:] and checks that they are well-formed; what is before was scanned already. It
// does not scan nested messages, except for the entries of maps: the generated code reads their keys and values up to the end of the
// surrounding message, so only here their bound is known.
func (m *scanned) scan(message []byte, from int) error {
	m.message = message
	for pos := from; pos < len(message); {
		start := pos
		var tag uint64
		tag, pos = uvarint(message, pos)
		number := int32(tag >> 3)
		if pos < 0 || number <= 0 {
			return errMalformed
		}
		var w wire
		if int(number) < len(m.wires) {
			w = m.wires[number]
		}
		if w.form == unknown {
			if pos = skip(message, start); pos < 0 {
				return errMalformed
			}
			continue
		}
		value, end := -1, -1
		switch wireType := tag & 7; w.form {
		case oneVarint:
			if wireType == typeVarint {
				value = pos
				_, end = uvarint(message, pos)
			}
		case manyVarints:
			value, end = numbers(message, pos, wireType)
		case manyEntries:
			if wireType == typeBytes {
				if value, end = consumeBytes(message, pos); !validEntry(message, value, end) {
					return errMalformed
				}
			}
		default:
			if wireType == typeBytes {
				value, end = consumeBytes(message, pos)
			}
		}
		if end < 0 {
			return errMalformed
		}
		if pos = end; value == end && w.form == manyVarints {
			continue // an empty packed list leaves the slice nil
		}
		m.record(w, start, value, end)
	}
	return nil
}

// record records one occurrence of a field.
func (m *scanned) record(w wire, tag, value, end int) {
	s := &m.slots[w.slot]
	if !m.present.has(uint(w.slot)) {
		m.present |= 1 << (w.slot % maxFields)
		s.n = 0
	}
	if w.form > oneBytes {
		value = tag
	}
	if w.form <= oneBytes || s.n == 0 {
		s.pos = int32(value)
	}
	s.end = int32(end)
	s.n++
}

// bytes returns the last value of a length-delimited field, nil if there is none.
func (m *scanned) bytes(i uint) []byte {
	if !m.present.has(i) {
		return nil
	}
	return m.slots[i].of(m.message)
}

// varint returns the last value of a varint field, zero if there is none.
func (m *scanned) varint(i uint) uint64 {
	if !m.present.has(i) {
		return 0
	}
	v, _ := uvarint(m.message, int(m.slots[i].pos))
	return v
}

func (s *slot) of(message []byte) []byte { return message[s.pos:s.end] }

// next returns the bounds of the first value of a field at or after pos, where there must be one.
func (m *scanned) next(pos int, number int32) (from, end int) {
	for {
		start := pos
		var tag uint64
		tag, pos = uvarint(m.message, pos)
		found := int32(tag >> 3)
		isNumbers := int(found) < len(m.wires) && m.wires[found].form == manyVarints
		switch {
		case isNumbers:
			from, end = numbers(m.message, pos, tag&7)
		case found == number:
			from, end = consumeBytes(m.message, pos)
		default:
			end = skip(m.message, start)
		}
		if found == number {
			return from, end
		}
		pos = end
	}
}

// pieces returns all values of a field whose slot is s.
func (m *scanned) pieces(number int32, s *slot) (list [][]byte) {
	for pos := 0; pos < int(s.end); {
		from, end := m.next(pos, number)
		list = append(list, m.message[from:end])
		pos = end
	}
	return list
}

// uvarint reads a varint at pos and returns the position after it, -1 if there is no varint.
func uvarint(message []byte, pos int) (uint64, int) {
	if pos < len(message) && message[pos] < 0x80 {
		return uint64(message[pos]), pos + 1
	}
	return longUvarint(message, pos)
}

func longUvarint(message []byte, pos int) (v uint64, next int) {
	for shift := uint(0); shift < 64 && pos < len(message); shift += 7 {
		c := message[pos]
		pos++
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v, pos
		}
	}
	return 0, -1
}

// consumeBytes reads a length at pos and returns the bounds of the value that follows, -1 if the message is too short.
func consumeBytes(message []byte, pos int) (from, end int) {
	size, from := uvarint(message, pos)
	if from < 0 || size > uint64(len(message)-from) {
		return -1, -1
	}
	return from, from + int(size)
}

// numbers returns the bounds of the varints of a repeated field at pos, after its tag: one, or a packed list. Like the generated code it
// allows the last varint of a list to extend beyond the list's end. end is -1 if the field is malformed.
func numbers(message []byte, pos int, wireType uint64) (from, end int) {
	switch wireType {
	case typeVarint:
		_, end = uvarint(message, pos)
		return pos, end
	case typeBytes:
		from, last := consumeBytes(message, pos)
		for end = from; end >= 0 && end < last; {
			_, end = uvarint(message, end)
		}
		return from, end
	}
	return 0, -1
}

// skip returns the position after the field whose tag is at pos, -1 if it is malformed. A group is skipped with the groups nested in it.
func skip(message []byte, pos int) int {
	for depth := 0; pos < len(message); {
		var tag uint64
		if tag, pos = uvarint(message, pos); pos < 0 {
			return -1
		}
		switch tag & 7 {
		case typeVarint:
			_, pos = uvarint(message, pos)
		case typeBytes:
			_, pos = consumeBytes(message, pos)
		case 1:
			pos += 8
		case 5:
			pos += 4
		case 3:
			depth++
		case 4:
			depth--
		default:
			return -1
		}
		if pos < 0 || pos > len(message) || depth < 0 {
			return -1
		}
		if depth == 0 {
			return pos
		}
	}
	return -1
}

const (
	entryKey   = 1
	entryValue = 2
)

// entryField reads one field of a map's entry that ends at end. Bounds are returned only for keys and values, whose wire type is not checked,
// as in the generated code. next is -1 if the field is malformed.
func entryField(message []byte, pos, end int) (number int32, from, to, next int) {
	tag, value := uvarint(message, pos)
	if value < 0 {
		return 0, 0, 0, -1
	}
	switch number = int32(tag >> 3); number {
	case entryKey, entryValue:
		from, to = consumeBytes(message, value)
		return number, from, to, to
	}
	if next = skip(message, pos); next > end {
		next = -1
	}
	return number, 0, 0, next
}

func validEntry(message []byte, pos, end int) bool {
	for pos >= 0 && pos < end {
		_, _, _, pos = entryField(message, pos, end)
	}
	return pos >= 0
}
