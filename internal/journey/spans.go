package journey

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"
)

// Components in other processes post their spans to PathSpans, as a Batch in JSON.
const (
	PathSpans    = "/skiff/v1/spans"
	MaxBatch     = 128       // number of spans in a batch
	MaxBatchSize = 1 << 20   // bytes of a batch in JSON
	maxBatchText = 128 << 10 // bytes of text in a batch; JSON encodes a byte as at most six
)

// PathJourney is the path at which an object's Tree is read.
const PathJourney = "/skiff/v1/journey"

// AboutNode is the prefix of an attribute's key that is followed by the name of a node.
const AboutNode = "node/"

// Batch is the body of a request to PathSpans.
type Batch struct{ Spans []Span }

// FirstBatch returns how many of the queued spans fit into one batch; at least one if there is any.
func FirstBatch(waiting []Span) int {
	text := 0
	for i := range waiting {
		if text += waiting[i].text(); i == MaxBatch || i > 0 && text > maxBatchText {
			return i
		}
	}
	return len(waiting)
}

func (s *Span) text() int {
	n := len(s.Component) + len(s.Stage) + len(s.Error)
	for _, a := range s.Attributes {
		n += len(a.Key) + len(a.Value)
	}
	return n
}

// Check returns an error if a batch that was received exceeds the limits.
func (b *Batch) Check() error {
	if len(b.Spans) > MaxBatch {
		return fmt.Errorf("more than %d spans", MaxBatch)
	}
	for i := range b.Spans {
		if err := b.Spans[i].Check(); err != nil {
			return fmt.Errorf("spans[%d]: %w", i, err)
		}
	}
	return nil
}

// PutSpan records a span of a component's work, which must be within the limits (Clip, Check). It does not block for long.
func (r *Recorder) PutSpan(s Span) {
	if r != nil {
		r.putSpan(r.spans, &s)
	}
}

func (r *Recorder) putSpan(into *byteRing, s *Span) {
	buf := r.bufferPool.Get().(*[]byte)
	defer r.bufferPool.Put(buf)
	*buf = appendSpan((*buf)[:0], s)
	into.put(*buf)
}

// Spans returns copies of all recorded spans: those of components in the order they ended, then those within requests.
func (r *Recorder) Spans() []Span {
	if r == nil {
		return nil
	}
	var all []Span
	for _, ring := range []*byteRing{r.spans, r.calls} {
		ring.each(func(b []byte) {
			if s, ok := readSpan(b); ok {
				all = append(all, s)
			}
		})
	}
	return all
}

// A byteRing keeps the last entries put into it, in a fixed number of bytes and of entries. Entries are of any size and contiguous;
// new ones displace the oldest.
type byteRing struct {
	mu      sync.Mutex
	bytes   []byte
	entries []extent // a ring of the ranges of bytes
	first   int      // index of the oldest entry
	count   int      // number of entries
	next    int      // offset in bytes of the next entry
}

type extent struct{ from, to uint32 }

func newByteRing(size, entries int) *byteRing {
	return &byteRing{bytes: make([]byte, size), entries: make([]extent, entries)}
}

func (t *byteRing) put(entry []byte) {
	if len(entry) == 0 || len(entry) > len(t.bytes) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next+len(entry) > len(t.bytes) {
		// The entries after next are older than all before it.
		for t.count > 0 && int(t.oldest().from) >= t.next {
			t.drop()
		}
		t.next = 0
	}
	from, to := uint32(t.next), uint32(t.next+len(entry))
	for t.count == len(t.entries) || t.count > 0 && t.oldest().from < to && from < t.oldest().to {
		t.drop()
	}
	copy(t.bytes[from:to], entry)
	t.entries[(t.first+t.count)%len(t.entries)] = extent{from, to}
	t.count++
	t.next = int(to)
}

func (t *byteRing) oldest() extent { return t.entries[t.first] }

func (t *byteRing) drop() {
	t.first = (t.first + 1) % len(t.entries)
	t.count--
}

// each calls visit with every entry, oldest first. Writers are blocked only while the entries are copied.
func (t *byteRing) each(visit func([]byte)) {
	t.mu.Lock()
	var bytes []byte
	extents := make([]extent, 0, t.count)
	for i := range t.count {
		e := t.entries[(t.first+i)%len(t.entries)]
		from := uint32(len(bytes))
		bytes = append(bytes, t.bytes[e.from:e.to]...)
		extents = append(extents, extent{from, uint32(len(bytes))})
	}
	t.mu.Unlock()
	for _, e := range extents {
		visit(bytes[e.from:e.to])
	}
}

// appendSpan appends a span as it is stored: ids, times, then texts preceded by their lengths.
func appendSpan(b []byte, s *Span) []byte {
	b = append(b, s.Trace[:]...)
	b = append(b, s.Span[:]...)
	b = append(b, s.Parent[:]...)
	b = binary.AppendVarint(b, s.Start.UnixNano())
	b = binary.AppendVarint(b, int64(s.Duration))
	b = appendText(b, s.Component, s.Stage, s.Error, s.Source)
	b = binary.AppendUvarint(b, uint64(len(s.Causes)))
	for _, c := range s.Causes {
		b = binary.AppendVarint(appendText(b, c.UID), c.Revision)
	}
	b = binary.AppendUvarint(b, uint64(len(s.Attributes)))
	for _, a := range s.Attributes {
		b = appendText(b, a.Key, a.Value)
	}
	return b
}

func appendText(b []byte, texts ...string) []byte {
	for _, s := range texts {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	return b
}

func readSpan(b []byte) (s Span, ok bool) {
	r := reader{rest: b}
	copy(s.Trace[:], r.take(len(s.Trace)))
	copy(s.SpanContext.Span[:], r.take(len(s.SpanContext.Span)))
	copy(s.Parent[:], r.take(len(s.Parent)))
	s.Start = time.Unix(0, r.number()).UTC()
	s.Duration = time.Duration(r.number())
	s.Component, s.Stage, s.Error, s.Source = r.text(), r.text(), r.text(), r.text()
	for range r.length() {
		s.Causes = append(s.Causes, Cause{UID: r.text(), Revision: r.number()})
	}
	for range r.length() {
		s.Attributes = append(s.Attributes, Attribute{Key: r.text(), Value: r.text()})
	}
	return s, !r.truncated
}

// reader decodes a span. Past the end it reads zeros.
type reader struct {
	rest      []byte
	truncated bool // whether something was read past the end
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.truncated, r.rest = true, nil
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) number() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.truncated, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) length() int {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || v > uint64(len(r.rest)) {
		r.truncated, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[n:]
	return int(v)
}

func (r *reader) text() string { return string(r.take(r.length())) }
