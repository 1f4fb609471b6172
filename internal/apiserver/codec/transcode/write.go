package transcode

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// AppendJSON appends the JSON of a protobuf message to b. An error means that the message is malformed; b is then returned as it was given.
func (p *Plan) AppendJSON(b, message []byte) ([]byte, error) {
	if len(message) > maxMessage {
		return b, errTooLarge
	}
	w := writers.Get().(*writer)
	defer w.release()
	out, err := w.message(b, p, message)
	if err != nil {
		return b, fmt.Errorf("failed to write a message of %v as JSON: %w", p.goType, err)
	}
	return out, nil
}

const (
	maxMessage  = math.MaxInt32 // the range of a slot
	maxDepth    = 1000          // of nested messages
	maxRetained = 1 << 16       // the maximum capacity of each stack of a pooled writer
)

// writer holds the working memory of one AppendJSON. Its slices are stacks: each message removes what it pushed.
type writer struct {
	slots   []slot
	entries []entry
	merged  []byte
	depth   int
}

var writers = sync.Pool{New: func() any { return new(writer) }}

func (w *writer) release() {
	if cap(w.slots) > maxRetained || cap(w.entries) > maxRetained || cap(w.merged) > maxRetained {
		return
	}
	w.slots, w.entries, w.merged, w.depth = w.slots[:0], w.entries[:0], w.merged[:0], 0
	writers.Put(w)
}

// enter pushes the slots of a message.
func (w *writer) enter(p *Plan) (m scanned, err error) {
	if w.depth++; w.depth > maxDepth {
		return m, errTooDeep
	}
	base := len(w.slots)
	w.slots = slices.Grow(w.slots, len(p.fields))[:base+len(p.fields)]
	return scanned{wires: p.wires, slots: w.slots[base:]}, nil
}

func (w *writer) leave(m *scanned) {
	w.depth--
	w.slots = w.slots[:len(w.slots)-len(m.slots)]
}

// message writes a message that occurs once.
func (w *writer) message(b []byte, p *Plan, message []byte) ([]byte, error) {
	if p.opaque {
		return p.appendOpaque(b, message)
	}
	m, err := w.enter(p)
	if err != nil {
		return b, err
	}
	if err := m.scan(message, 0); err != nil {
		return b, err
	}
	b, err = w.object(b, p, &m)
	w.leave(&m)
	return b, err
}

// within writes a field that is a message, which may occur several times. Unmarshalling the occurrences one after the other into the same
// object is like unmarshalling their concatenation, but each must be well-formed.
func (w *writer) within(b []byte, f *field, s *slot, around *scanned) ([]byte, error) {
	p := f.value.plan
	if p.opaque {
		return p.appendOpaque(b, around.pieces(f.number, s)...)
	}
	m, err := w.enter(p)
	if err != nil {
		return b, err
	}
	base := len(w.merged)
	if s.n == 1 {
		err = m.scan(s.of(around.message), 0)
	} else {
		for pos := 0; pos < int(s.end) && err == nil; {
			var from int
			from, pos = around.next(pos, f.number)
			joined := len(w.merged) - base
			w.merged = append(w.merged, around.message[from:pos]...)
			err = m.scan(w.merged[base:], joined)
		}
	}
	if err != nil {
		return b, err
	}
	if f.shape == inlined {
		b, err = w.members(b, p, &m)
	} else {
		b, err = w.object(b, p, &m)
	}
	w.merged = w.merged[:base]
	w.leave(&m)
	return b, err
}

func (w *writer) object(b []byte, p *Plan, m *scanned) ([]byte, error) {
	open := len(b)
	b, err := w.members(b, p, m)
	if len(b) == open {
		return append(b, "{}"...), err
	}
	b[open] = '{' // replaces the comma of the first key
	return append(b, '}'), err
}

// members writes the keys and values of an object.
func (w *writer) members(b []byte, p *Plan, m *scanned) (_ []byte, err error) {
	for rest := m.present | p.always; rest != 0; rest &= rest - 1 {
		i := uint(bits.TrailingZeros64(uint64(rest)))
		f := &p.fields[i]
		if !m.present.has(i) {
			b = append(b, f.absent...)
			continue
		}
		s := &m.slots[i]
		switch f.shape {
		case number:
			if n := f.value.kind.number(m.varint(i)); n != 0 || !f.omitEmpty {
				b = appendNumber(append(b, f.key...), f.value.kind, n)
			}
		case stringValue:
			if s.pos < s.end || !f.omitEmpty {
				b = AppendString(append(b, f.key...), s.of(m.message))
			}
		case single:
			if s.pos < s.end || !f.omitEmpty {
				b, err = w.single(append(b, f.key...), f, s, m)
			}
		case nested:
			b, err = w.within(append(b, f.key...), f, s, m)
		case inlined:
			b, err = w.within(b, f, s, m)
		case list:
			b, err = w.list(append(b, f.key...), f, s, m)
		case mapping:
			b, err = w.mapping(append(b, f.key...), f, s, m)
		}
		if err != nil {
			return b, err
		}
	}
	return b, nil
}

var null = []byte("null")

// single writes bytes or a well-known type after its key.
func (w *writer) single(b []byte, f *field, s *slot, m *scanned) (_ []byte, err error) {
	if s.n > 1 && f.value.plan != nil {
		b, err = f.value.plan.appendOpaque(b, m.pieces(f.number, s)...)
	} else {
		b, err = w.value(b, f.value, s.of(m.message))
	}
	if f.omitZero && bytes.HasSuffix(b, null) {
		b = b[:len(b)-len(null)-len(f.key)]
	}
	return b, err
}

// value writes a single value.
func (w *writer) value(b []byte, v value, content []byte) ([]byte, error) {
	switch v.kind {
	case text:
		return AppendString(b, content), nil
	case blob:
		b = append(b, '"')
		b = base64.StdEncoding.AppendEncode(b, content)
		return append(b, '"'), nil
	case submessage:
		return w.message(b, v.plan, content)
	}
	return appendWellKnown(b, v, content)
}

func (w *writer) list(b []byte, f *field, s *slot, m *scanned) (_ []byte, err error) {
	b = append(b, '[')
	for pos := int(s.pos); pos < int(s.end); {
		from, end := m.next(pos, f.number)
		if f.value.kind < text {
			for from < end {
				var v uint64
				v, from = uvarint(m.message, from)
				b = append(appendNumber(b, f.value.kind, f.value.kind.number(v)), ',')
			}
		} else {
			if b, err = w.value(b, f.value, m.message[from:end]); err != nil {
				return b, err
			}
			b = append(b, ',')
		}
		pos = end
	}
	b[len(b)-1] = ']' // a list that the message has is not empty
	return b, nil
}

// entry holds the positions of the key and value of a map's entry.
type entry struct{ key, value slot }

// mapping writes a map. The entries are mostly sorted by key already, as in JSON.
func (w *writer) mapping(b []byte, f *field, s *slot, m *scanned) (_ []byte, err error) {
	base := len(w.entries)
	ordered := true
	for pos := int(s.pos); pos < int(s.end); {
		from, end := m.next(pos, f.number)
		e, err := readEntry(f.value, m.message, from, end)
		if err != nil {
			return b, err
		}
		if n := len(w.entries); n > base {
			ordered = ordered && bytes.Compare(w.entries[n-1].key.of(m.message), e.key.of(m.message)) < 0
		}
		w.entries = append(w.entries, e)
		pos = end
	}
	entries := w.entries[base:]
	if !ordered {
		if entries, err = sortEntries(f.value, m.message, entries); err != nil {
			return b, err
		}
	}
	b = append(b, '{')
	for _, e := range entries {
		b = append(AppendString(b, e.key.of(m.message)), ':')
		if b, err = w.value(b, f.value, e.value.of(m.message)); err != nil {
			return b, err
		}
		b = append(b, ',')
	}
	b[len(b)-1] = '}'
	w.entries = w.entries[:base]
	return b, nil
}

// readEntry returns the key and value of the map's entry at message[from:end]. Missing ones are empty; of repeated ones the last is used.
func readEntry(v value, message []byte, from, end int) (entry, error) {
	var e entry
	for from < end {
		number, start, stop, next := entryField(message, from, end)
		found := slot{pos: int32(start), end: int32(stop), n: 1}
		switch number {
		case entryKey:
			e.key = found
		case entryValue:
			if e.value.n > 0 && !v.valid(e.value.of(message)) {
				return e, errMalformed
			}
			e.value = found
		}
		from = next
	}
	return e, nil
}

// sortEntries sorts a map's entries by key and keeps the last of each.
func sortEntries(v value, message []byte, list []entry) ([]entry, error) {
	slices.SortStableFunc(list, func(x, y entry) int { return bytes.Compare(x.key.of(message), y.key.of(message)) })
	kept := list[:0]
	for i, e := range list {
		if i+1 < len(list) && bytes.Equal(e.key.of(message), list[i+1].key.of(message)) {
			if !v.valid(e.value.of(message)) {
				return nil, errMalformed
			}
			continue
		}
		kept = append(kept, e)
	}
	return kept, nil
}

// number returns the value of a varint of a kind: the generated code keeps the low bits, and takes anything but zero for true.
func (k kind) number(v uint64) int64 {
	switch {
	case k == int32s:
		return int64(int32(v))
	case k == boolean && v != 0:
		return 1
	}
	return int64(v)
}

func appendNumber(b []byte, k kind, n int64) []byte {
	if k == boolean {
		return strconv.AppendBool(b, n != 0)
	}
	return strconv.AppendInt(b, n, 10)
}

// plain are the characters that are not escaped in a JSON string.
var plain = func() (set [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		set[c] = !strings.ContainsRune(`"\<>&`, c)
	}
	return set
}()

// AppendString appends a JSON string as encoding/json does: HTML's special characters and the line separators of JavaScript are escaped too,
// and invalid UTF-8 is replaced.
func AppendString(b, s []byte) []byte {
	b = append(b, '"')
	done := 0
	for i := plainPrefix(s); i < len(s); i += plainPrefix(s[i:]) {
		r, size := rune(s[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(s[i:])
			if r != '\u2028' && r != '\u2029' && (r != utf8.RuneError || size > 1) {
				i += size
				continue
			}
		}
		b = appendEscape(append(b, s[done:i]...), r)
		i += size
		done = i
	}
	b = append(b, s[done:]...)
	return append(b, '"')
}

// plainPrefix returns the number of bytes at the beginning of s that are not escaped. It checks eight at once: a subtraction from each byte
// sets the highest bit, if it was not set, in the first byte that is smaller.
func plainPrefix(s []byte) (i int) {
	const each, highest = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(s); i += 8 {
		x := binary.LittleEndian.Uint64(s[i:])
		quote := x&^(4*each) ^ '"'*each // zero at an ampersand too
		angle := x&^(2*each) ^ '<'*each // zero at both angle brackets
		slash := x ^ '\\'*each
		stop := x | (x-' '*each)&^x | (quote-each)&^quote | (angle-each)&^angle | (slash-each)&^slash
		if stop&highest != 0 {
			return i + bits.TrailingZeros64(stop&highest)/8
		}
	}
	for i < len(s) && plain[s[i]] {
		i++
	}
	return i
}

func appendEscape(b []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(b, '\\', byte(r))
	case '\b':
		return append(b, '\\', 'b')
	case '\f':
		return append(b, '\\', 'f')
	case '\n':
		return append(b, '\\', 'n')
	case '\r':
		return append(b, '\\', 'r')
	case '\t':
		return append(b, '\\', 't')
	}
	const hex = "0123456789abcdef"
	return append(b, '\\', 'u', hex[r>>12&0xf], hex[r>>8&0xf], hex[r>>4&0xf], hex[r&0xf])
}
