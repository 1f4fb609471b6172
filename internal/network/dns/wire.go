package dns

import (
	"encoding/binary"
	"errors"
	"strings"
)

// The constants of the DNS protocol that are used here (RFC 1035, 2782, 3596, 6891).
const (
	typeA     = 1
	typeNS    = 2
	typeCNAME = 5
	typeSOA   = 6
	typePTR   = 12
	typeMX    = 15
	typeTXT   = 16
	typeAAAA  = 28
	typeSRV   = 33
	typeOPT   = 41
	typeIXFR  = 251
	typeAXFR  = 252

	classIN = 1

	rcodeSuccess        = 0
	rcodeFormatError    = 1
	rcodeServerFailure  = 2
	rcodeNameError      = 3
	rcodeNotImplemented = 4
	rcodeRefused        = 5
	rcodeBadVersion     = 16

	flagResponse      = 1 << 15
	flagAuthoritative = 1 << 10
	flagTruncated     = 1 << 9
	flagRecursion     = 1 << 8 // desired
	flagUnchecked     = 1 << 4 // checking disabled

	headerSize = 12
	// optSize is the size of an OPT record without options.
	optSize = 11
	// maxName is the longest a name can be, encoded.
	maxName   = 255
	maxLabel  = 63
	maxLabels = 128
	// maxMessage is the longest a message can be.
	maxMessage = 65535
	// toQuestion points to the name of the question, which begins after the header.
	toQuestion = 0xC000 | headerSize
	// maxOffset is the last place in a message that can be pointed to.
	maxOffset = 0x3FFF
)

var errMessage = errors.New("not a valid DNS message")

// encodeName returns the encoded form of a name given as text, in lower case.
func encodeName(name string) ([]byte, error) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	var out []byte
	if name != "" {
		for label := range strings.SplitSeq(name, ".") {
			if label == "" || len(label) > maxLabel {
				return nil, errors.New("not a domain name: " + name)
			}
			out = append(append(out, byte(len(label))), label...)
		}
	}
	if len(out)+1 > maxName {
		return nil, errors.New("too long for a domain name: " + name)
	}
	return append(out, 0), nil
}

// appendLabel adds one label to an encoded name.
func appendLabel(dst []byte, label string) []byte {
	return append(append(dst, byte(len(label))), label...)
}

// appendRecord appends the fields between a record's name and its data: type, class, TTL and length.
func appendRecord(dst []byte, kind uint16, ttl uint32, size int) []byte {
	dst = binary.BigEndian.AppendUint16(dst, kind)
	dst = binary.BigEndian.AppendUint16(dst, classIN)
	dst = binary.BigEndian.AppendUint32(dst, ttl)
	return binary.BigEndian.AppendUint16(dst, uint16(size))
}

// skipName returns where a name in a message ends.
func skipName(msg []byte, at int) (int, error) {
	for at < len(msg) {
		switch n := int(msg[at]); {
		case n == 0:
			return at + 1, nil
		case n >= 0xC0:
			if at+2 > len(msg) {
				return 0, errMessage
			}
			return at + 2, nil
		case n > maxLabel:
			return 0, errMessage
		default:
			at += 1 + n
		}
	}
	return 0, errMessage
}

// expandName appends a name of a message to dst, without compression. Pointers must lead backwards, so that they come to an end.
func expandName(dst, msg []byte, at int) ([]byte, error) {
	begin, bound := len(dst), at
	for at < len(msg) {
		n := int(msg[at])
		switch {
		case n == 0:
			return append(dst, 0), nil
		case n >= 0xC0:
			if at+2 > len(msg) {
				return nil, errMessage
			}
			at = int(binary.BigEndian.Uint16(msg[at:]) & maxOffset)
			if at >= bound {
				return nil, errMessage
			}
			bound = at
		case n > maxLabel || at+1+n > len(msg) || len(dst)-begin+1+n >= maxName:
			return nil, errMessage
		default:
			dst = append(dst, msg[at:at+1+n]...)
			at += 1 + n
		}
	}
	return nil, errMessage
}

// record is a resource record of a message, with the offsets of its name, its data and its end.
type record struct {
	begin, data, end int
	kind, class      uint16
	ttl              uint32
}

// readRecord reads the record that begins at an offset of a message.
func readRecord(msg []byte, at int) (record, error) {
	r := record{begin: at}
	fixed, err := skipName(msg, at)
	if err != nil {
		return r, err
	}
	if fixed+10 > len(msg) {
		return r, errMessage
	}
	r.kind, r.class = binary.BigEndian.Uint16(msg[fixed:]), binary.BigEndian.Uint16(msg[fixed+2:])
	r.ttl = binary.BigEndian.Uint32(msg[fixed+4:])
	r.data = fixed + 10
	r.end = r.data + int(binary.BigEndian.Uint16(msg[fixed+8:]))
	if r.end > len(msg) {
		return r, errMessage
	}
	return r, nil
}

// lower changes ASCII letters to lower case.
func lower(b []byte) {
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
}

// hasUpper reports whether there are letters that lower would change.
func hasUpper(b []byte) bool {
	for _, c := range b {
		if 'A' <= c && c <= 'Z' {
			return true
		}
	}
	return false
}
