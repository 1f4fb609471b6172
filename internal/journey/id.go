package journey

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
)

// HeaderTraceparent is the W3C header by which a client continues its trace in the server.
const HeaderTraceparent = "Traceparent"

// A TraceID identifies a trace, a SpanID one request or span within it; both as in W3C Trace Context and OpenTelemetry.
type (
	TraceID [16]byte
	SpanID  [8]byte
)

func (id TraceID) String() string { return hex.EncodeToString(id[:]) }
func (id SpanID) String() string  { return hex.EncodeToString(id[:]) }

// MarshalText implements encoding.TextMarshaler, so that ids are readable in JSON.
func (id TraceID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }
func (id SpanID) MarshalText() ([]byte, error)  { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *TraceID) UnmarshalText(b []byte) error { return unmarshalID(id[:], b) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *SpanID) UnmarshalText(b []byte) error { return unmarshalID(id[:], b) }

func unmarshalID(id, text []byte) error {
	if len(text) != 2*len(id) || !unhex(id, string(text)) {
		return fmt.Errorf("id: want %d lower-case hex digits", 2*len(id))
	}
	return nil
}

// A SpanContext refers to a request or span. The zero value refers to none.
type SpanContext struct {
	Trace TraceID
	Span  SpanID
}

// IsZero reports whether it refers to no request or span.
func (c SpanContext) IsZero() bool { return c == SpanContext{} }

// Traceparent formats the value of HeaderTraceparent. The sampled flag is set, because every request is recorded.
func (c SpanContext) Traceparent() string {
	var b [55]byte
	copy(b[:], "00-")
	hex.Encode(b[3:35], c.Trace[:])
	b[35] = '-'
	hex.Encode(b[36:52], c.Span[:])
	copy(b[52:], "-01")
	return string(b[:])
}

var errTraceparent = errors.New("traceparent: want version-trace-span-flags in lower-case hex, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")

// ParseTraceparent parses the value of HeaderTraceparent as W3C Trace Context requires: versions above 00 may carry more after
// the flags, and ids are never all zero. The flags are ignored, because every request is recorded.
func ParseTraceparent(s string) (SpanContext, error) {
	var c SpanContext
	if len(s) < 55 || len(s) > 512 || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return c, errTraceparent
	}
	var version, flags [1]byte
	ok := unhex(version[:], s[:2]) && unhex(c.Trace[:], s[3:35]) && unhex(c.Span[:], s[36:52]) && unhex(flags[:], s[53:55])
	switch {
	case !ok, version[0] == 0xff, c.Trace == TraceID{}, c.Span == SpanID{}:
	case len(s) == 55, version[0] > 0 && s[55] == '-':
		return c, nil
	}
	return SpanContext{}, errTraceparent
}

// unhex decodes lower-case hex of exactly dst's size.
func unhex(dst []byte, src string) bool {
	for i := range dst {
		high, low := nibble(src[2*i]), nibble(src[2*i+1])
		if high > 15 || low > 15 {
			return false
		}
		dst[i] = high<<4 | low
	}
	return true
}

func nibble(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}

// newTraceID returns a random id. It need not be unpredictable, only unique.
func newTraceID() (id TraceID) {
	binary.LittleEndian.PutUint64(id[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rand.Uint64()|1)
	return id
}

// newSpanID returns a random id. It need not be unpredictable, only unique.
func newSpanID() (id SpanID) {
	binary.LittleEndian.PutUint64(id[:], rand.Uint64()|1)
	return id
}
