package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// magic begins the envelope in which a protobuf object is sent and stored: these four bytes, then a runtime.Unknown message that holds the
// apiVersion, the kind and the object's own message.
var magic = []byte{'k', '8', 's', 0}

// unknownEnd ends a runtime.Unknown message: empty contentEncoding and contentType, which upstream writes too.
var unknownEnd = []byte{3<<3 | 2, 0, 4<<3 | 2, 0}

// EnvelopeHead returns the beginning of the envelopes of a kind, up to the length of the object's message.
func EnvelopeHead(gvk schema.GroupVersionKind) []byte {
	apiVersion := gvk.GroupVersion().String()
	var typeMeta []byte
	typeMeta = appendField(typeMeta, 1, []byte(apiVersion))
	typeMeta = appendField(typeMeta, 2, []byte(gvk.Kind))
	head := appendField(bytes.Clone(magic), 1, typeMeta)
	return append(head, 2<<3|2)
}

// EnvelopeSize returns the size of an envelope around a message of the given size.
func EnvelopeSize(head []byte, message int) int {
	return len(head) + varintSize(message) + message + len(unknownEnd)
}

// AppendEnvelope appends the envelope of a message.
func AppendEnvelope(b, head, message []byte) []byte {
	b = append(b, head...)
	b = binary.AppendUvarint(b, uint64(len(message)))
	b = append(b, message...)
	return append(b, unknownEnd...)
}

// IsProtobuf reports whether data begins with the magic of an envelope.
func IsProtobuf(data []byte) bool { return bytes.HasPrefix(data, magic) }

// OpenEnvelope returns the message in an envelope and its kind.
func OpenEnvelope(data []byte) (message []byte, gvk schema.GroupVersionKind, err error) {
	if len(data) == 0 {
		return nil, gvk, errors.New("empty data")
	}
	if !IsProtobuf(data) {
		return nil, gvk, errors.New("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
	}
	if len(data) == len(magic) {
		return nil, gvk, errors.New("empty body")
	}
	var u runtime.Unknown
	if err := u.Unmarshal(data[len(magic):]); err != nil {
		return nil, gvk, err
	}
	gv, err := schema.ParseGroupVersion(u.APIVersion)
	if err != nil {
		return nil, gvk, err
	}
	return u.Raw, gv.WithKind(u.Kind), nil
}

// openStored returns the message in a stored envelope without copying it. Stored envelopes were written by an API server and are well-formed.
func openStored(data []byte) ([]byte, error) {
	data = data[len(magic):]
	for len(data) > 0 {
		tag, n := binary.Uvarint(data)
		if n <= 0 || tag&7 != 2 {
			break
		}
		size, m := binary.Uvarint(data[n:])
		if m <= 0 || size > uint64(len(data)-n-m) {
			break
		}
		end := n + m + int(size)
		if tag>>3 == 2 {
			return data[n+m : end : end], nil
		}
		data = data[end:]
	}
	return nil, fmt.Errorf("malformed envelope")
}

func appendField(b []byte, number byte, value []byte) []byte {
	b = append(b, number<<3|2)
	b = binary.AppendUvarint(b, uint64(len(value)))
	return append(b, value...)
}

func varintSize(n int) int {
	size := 1
	for n >= 0x80 {
		n >>= 7
		size++
	}
	return size
}

// AppendEnvelopeEnd appends the end of an envelope whose message was written in pieces.
func AppendEnvelopeEnd(b []byte) []byte { return append(b, unknownEnd...) }
