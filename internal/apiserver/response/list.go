package response

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/registry"
)

// SendList answers with the objects of a page, in the form the client asked for.
func (rs *Responder) SendList(page registry.Page) error {
	rs.Trace.Stage("response")
	if page.Long() {
		if !rs.mayStream() {
			if err := page.Load(rs.Ctx); err != nil {
				return err
			}
		}
	}
	if rs.Resource.Registry != nil {
		var err error
		if page.Items, err = rs.Resource.Registry.CurrentAll(rs.Ctx, page.Items, rs.Reading()); err != nil {
			return err
		}
	}
	switch rs.Accept.Shape {
	case codec.AsTable:
		return rs.table(http.StatusOK, page, false)
	case codec.AsPartialList:
		return rs.partials(page)
	case codec.AsPartial:
		return codec.NotAcceptable(fmt.Sprintf("you requested PartialObjectMetadata, but the requested object is a list (*%sList)", rs.Resource.internalName()))
	}
	meta := ListMeta(page)
	if rs.Accept.Media == codec.Protobuf {
		if page.Long() {
			return rs.streamLongProtobuf(page, rs.Resource.listEnvelope, rs.Resource.message)
		}
		return rs.protobufList(page, meta)
	}
	return rs.jsonList(page, meta)
}

// ListMeta returns the metadata of a list that has the objects of a page.
func ListMeta(page registry.Page) metav1.ListMeta {
	return metav1.ListMeta{ResourceVersion: strconv.FormatInt(page.Revision, 10), Continue: page.Continue, RemainingItemCount: page.Remaining}
}

// buffers has buffers in which chunks of a response are put together.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, chunkSize+chunkSize/4); return &b }}

// chunkSize is how many bytes of a list are written at a time.
const chunkSize = 128 << 10

// listWriter buffers small pieces into chunks. After an error it writes nothing more.
type listWriter struct {
	out io.Writer
	buf []byte
	err error
}

func (l *listWriter) flushIfFull() {
	if len(l.buf) >= chunkSize {
		l.flush()
	}
}

func (l *listWriter) flush() {
	if l.err == nil && len(l.buf) > 0 {
		_, l.err = l.out.Write(l.buf)
	}
	l.buf = l.buf[:0]
}

// write writes bytes that need no buffering.
func (l *listWriter) write(b []byte) {
	l.flush()
	if l.err == nil {
		_, l.err = l.out.Write(b)
	}
}

// stream sends a body that write writes through a pooled buffer. size is its length, or about its length unless exact. revision is that of a list
// which is the same for all who request it at that revision; 0 for others, which are not kept compressed.
func (rs *Responder) stream(size int, exact bool, revision int64, write func(*listWriter)) {
	if body := rs.compressedList(size, revision, write); body != nil {
		setGzipHeaders(rs.W.Header())
		size, exact, write = len(body), true, func(l *listWriter) { l.write(body) }
		rs.streamTo(rs.W, size, exact, write)
		return
	}
	out, done := rs.compressed(size)
	defer done()
	rs.streamTo(out, size, exact && out == io.Writer(rs.W), write)
}

// streamTo sends the headers, and what write writes to out, which is the client or gzip. It aborts the connection if that fails.
func (rs *Responder) streamTo(out io.Writer, size int, exact bool, write func(*listWriter)) {
	if exact {
		rs.W.Header()["Content-Length"] = []string{strconv.Itoa(size)}
	}
	rs.header(http.StatusOK)
	if rs.Method == http.MethodHead {
		return
	}
	rs.W.keepsSeat = rs.W.keepsSeat || size > largeBody
	if size >= chunkSize { // a smaller one fits into the buffers of the connection
		defer context.AfterFunc(rs.Ctx, rs.abort)()
	}
	if err := writeChunked(out, write); err != nil {
		panic(http.ErrAbortHandler) // the client must not take what it has got for the whole response
	}
}

// writeChunked calls write with a pooled buffer, which it flushes to out.
func writeChunked(out io.Writer, write func(*listWriter)) error {
	buf := buffers.Get().(*[]byte)
	l := &listWriter{out: out, buf: (*buf)[:0]}
	write(l)
	l.flush()
	*buf = l.buf[:0]
	buffers.Put(buf)
	return l.err
}

// sendItems sends JSON that begins with head, up to the bracket of a list, and ends with n items of about the size typical.
func (rs *Responder) sendItems(code int, head []byte, n, typical int, item func(b []byte, i int) ([]byte, error)) error {
	var err error
	if n < minStreamedItems || rs.reformatted() {
		for i := range n {
			if i > 0 {
				head = append(head, ',')
			}
			if head, err = item(head, i); err != nil {
				return err
			}
		}
		return rs.sendJSON(code, append(head, "]}"...))
	}
	rs.stream(n*typical, false, 0, func(l *listWriter) {
		l.buf = append(l.buf, head...)
		for i := range n {
			if i > 0 {
				l.buf = append(l.buf, ',')
			}
			b, err := item(l.buf, i)
			if err != nil {
				l.err = err
				return
			}
			l.buf = b
			l.flushIfFull()
		}
		l.buf = append(l.buf, "]}\n"...)
	})
	return nil
}

// minStreamedItems is the number of items from which a list is sent in chunks.
const minStreamedItems = 100

// protobufList sends a list as protobuf, by concatenating stored messages: field 1 of a list is its metadata, field 2 an item.
func (rs *Responder) protobufList(page registry.Page, meta metav1.ListMeta) error {
	raws := make([][]byte, len(page.Items))
	for i, it := range page.Items {
		raw, err := rs.Resource.message(it)
		if err != nil {
			return err
		}
		raws[i] = raw
	}
	encoded, err := meta.Marshal()
	if err != nil {
		return err
	}
	sizeOf := func(i int) int { return len(raws[i]) }
	rs.streamMessages(rs.Resource.listEnvelope, encoded, page.Revision, len(raws), sizeOf, func(b []byte, i int) []byte { return append(b, raws[i]...) })
	return nil
}

// streamMessages sends a list as protobuf: head, the encoded metadata, and n items that item appends, whose sizes sizeOf knows.
func (rs *Responder) streamMessages(head, meta []byte, revision int64, n int, sizeOf func(int) int, item func([]byte, int) []byte) {
	size := fieldSize(len(meta))
	for i := range n {
		size += fieldSize(sizeOf(i))
	}
	rs.stream(codec.EnvelopeSize(head, size), true, revision, func(l *listWriter) {
		l.buf = append(l.buf, head...)
		l.buf = binary.AppendUvarint(l.buf, uint64(size))
		l.buf = appendMessage(l.buf, 1, meta)
		for i := range n {
			l.buf = append(l.buf, 2<<3|2)
			l.buf = item(binary.AppendUvarint(l.buf, uint64(sizeOf(i))), i)
			l.flushIfFull()
		}
		l.buf = codec.AppendEnvelopeEnd(l.buf)
	})
}

// fieldSize returns the size of a protobuf field with n bytes: its tag, its length and the bytes.
func fieldSize(n int) int {
	size := 1 + n + 1
	for v := n; v >= 0x80; v >>= 7 {
		size++
	}
	return size
}

// appendMessage appends a protobuf field with a message.
func appendMessage(b []byte, number byte, message []byte) []byte {
	b = append(b, number<<3|2)
	b = binary.AppendUvarint(b, uint64(len(message)))
	return append(b, message...)
}

// jsonList sends a list as JSON, by concatenating the JSON of its objects.
func (rs *Responder) jsonList(page registry.Page, meta metav1.ListMeta) error {
	if page.Long() {
		head, err := longHead(rs.Resource.listHead, meta, `,"items":[`)
		if err != nil {
			return err
		}
		return rs.streamLongJSON(page, head, rs.Resource.appendJSON)
	}
	bodies := make([][]byte, len(page.Items))
	size := 0
	if err := eachFromRandomStart(len(page.Items), func(i int) error {
		body, err := rs.Resource.json(page.Items[i])
		bodies[i] = body
		size += len(rs.Resource.itemHead(body)) + len(rs.Resource.itemRest(body)) + 1
		return err
	}); err != nil {
		return err
	}
	m, err := json.Marshal(meta)
	if err != nil {
		return err
	}
	head := append([]byte(nil), rs.Resource.listHead...)
	head = append(head, `"metadata":`...)
	head = append(head, m...)
	head = append(head, `,"items":[`...)
	if rs.reformatted() {
		all := append(make([]byte, 0, len(head)+size+2), head...)
		for i, body := range bodies {
			if i > 0 {
				all = append(all, ',')
			}
			all = append(append(all, rs.Resource.itemHead(body)...), rs.Resource.itemRest(body)...)
		}
		return rs.sendJSON(http.StatusOK, append(all, "]}"...))
	}
	if len(bodies) > 0 {
		size-- // there is one comma fewer than items
	}
	rs.stream(len(head)+size+3, true, page.Revision, func(l *listWriter) {
		l.buf = append(l.buf, head...)
		for i, body := range bodies {
			if i > 0 {
				l.buf = append(l.buf, ',')
			}
			l.buf = append(append(l.buf, rs.Resource.itemHead(body)...), rs.Resource.itemRest(body)...)
			l.flushIfFull()
		}
		l.buf = append(l.buf, "]}\n"...)
	})
	return nil
}

// itemHead returns what the JSON of an object that json returned begins with in a list: kind and apiVersion, which only custom objects have there.
func (res *Resource) itemHead(body []byte) []byte {
	if !res.Info.JSONOnly || len(body) <= len("{}") {
		return nil
	}
	return res.jsonHead
}

// itemRest returns what follows the head of an object in a list.
func (res *Resource) itemRest(body []byte) []byte {
	if res.itemHead(body) == nil {
		return body
	}
	return body[1:]
}

// eachFromRandomStart calls f for 0 to n-1, starting at a random number. Several requests that need the same encoded objects at once thus share the
// work of encoding them, instead of each encoding the same object at the same time.
func eachFromRandomStart(n int, f func(int) error) error {
	if n == 0 {
		return nil
	}
	start := rand.IntN(n)
	for i := range n {
		if err := f((start + i) % n); err != nil {
			return err
		}
	}
	return nil
}
