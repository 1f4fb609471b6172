package apiserver

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/registry"
	"skiff/internal/cache"
)

func typesUID(s string) types.UID { return types.UID(s) }

// answer sends one stored object in the form the client asked for.
func (rq *Request) answer(code int, it *cache.Item) error {
	rq.Trace.Stage("response")
	switch rq.Accept.Shape {
	case codec.AsTable:
		return rq.answerTable(code, registry.Page{Items: []*cache.Item{it}, Revision: it.Revision}, true)
	case codec.AsPartial:
		return rq.answerPartial(code, it)
	case codec.AsPartialList:
		return codec.NotAcceptable(fmt.Sprintf("you requested PartialObjectMetadataList, but the requested object is not a list (*%s)", rq.Endpoint.internalName()))
	}
	if rq.Accept.Media == codec.Protobuf && rq.Endpoint.plain() {
		head := rq.Endpoint.envelope
		raw := it.Raw()
		b := make([]byte, 0, codec.EnvelopeSize(head, len(raw)))
		rq.send(code, codec.AppendEnvelope(b, head, raw))
		return nil
	}
	body, err := rq.Endpoint.json(it)
	if err != nil {
		return err
	}
	if rq.Accept.Media == codec.Protobuf {
		obj, err := rq.Endpoint.served(it)
		if err != nil {
			return err
		}
		return rq.answerObject(code, obj, rq.Endpoint.Info.GVK)
	}
	return rq.sendJSON(code, codec.AppendKind(make([]byte, 0, len(body)+len(rq.Endpoint.jsonHead)+1), rq.Endpoint.jsonHead, body))
}

// answerObject sends an object that is not in the store.
func (rq *Request) answerObject(code int, obj runtime.Object, gvk schema.GroupVersionKind) error {
	accept := rq.Accept
	accept.Pretty = accept.Pretty || prettyAgent(rq.Request)
	b, err := codec.Single(obj, gvk, accept)
	if err != nil {
		return err
	}
	rq.send(code, b)
	return nil
}

func (rq *Request) answerStatus(s *metav1.Status) error {
	code := http.StatusOK
	if s.Code != 0 {
		code = int(s.Code)
	}
	return rq.answerObject(code, s.DeepCopy(), codec.StatusKind)
}

func (rq *Request) partialKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: metav1.GroupName, Version: rq.Accept.Version, Kind: kind}
}

// rewritten reports whether JSON is not sent as it is, but indented or as YAML.
func (rq *Request) rewritten() bool {
	return rq.Accept.Media == codec.YAML || rq.Accept.Pretty || prettyAgent(rq.Request)
}

// sendJSON sends JSON as it is, indented or as YAML.
func (rq *Request) sendJSON(code int, b []byte) error {
	accept := rq.Accept
	accept.Pretty = accept.Pretty || prettyAgent(rq.Request)
	b, err := codec.Finish(b, accept)
	if err != nil {
		return err
	}
	rq.send(code, b)
	return nil
}

func (rq *Request) header(code int) {
	h := rq.W.Header()
	h["Content-Type"] = contentTypes[rq.Accept.Media]
	rq.W.WriteHeader(code)
}

var (
	noCache      = []string{"no-cache, private"}
	contentTypes = [][]string{codec.JSON: {codec.JSONType}, codec.YAML: {codec.YAMLType}, codec.Protobuf: {codec.ProtobufType}}
)

func (rq *Request) send(code int, b []byte) {
	out, done := rq.compressed(len(b))
	defer done()
	if out == io.Writer(rq.W) {
		rq.W.Header()["Content-Length"] = []string{strconv.Itoa(len(b))}
	}
	rq.header(code)
	rq.W.heavy = rq.W.heavy || len(b) > heavyRequest
	if rq.Method != http.MethodHead {
		_, _ = out.Write(b)
	}
}

// compressAbove is the size from which answers are compressed for clients that ask.
const compressAbove = 128 << 10

var gzips = sync.Pool{New: func() any {
	z, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is a constant
	}
	return z
}}

// compressed returns where to write an answer of the given size. Compression costs more than copying where the peer is on this
// machine, so it is not done there.
func (rq *Request) compressed(size int) (io.Writer, func()) {
	if size < compressAbove || !acceptsGzip(rq.Request) || fromThisHost(rq.Request) {
		return rq.W, func() {}
	}
	z := gzips.Get().(*gzip.Writer)
	z.Reset(rq.W)
	sayZipped(rq.W.Header())
	return z, func() {
		_ = z.Close()
		gzips.Put(z)
	}
}

func sayZipped(h http.Header) {
	h.Set("Content-Encoding", "gzip")
	h.Add("Vary", "Accept-Encoding")
}

func acceptsGzip(r *http.Request) bool {
	for _, part := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		name, _, _ := strings.Cut(strings.TrimSpace(part), ";")
		if name == "gzip" || name == "*" {
			return true
		}
	}
	return false
}

func fromThisHost(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return true // no network in between
	}
	ip := net.ParseIP(host)
	if ip.IsLoopback() {
		return true
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return local != nil && local.IP.Equal(ip)
}

// answerList sends the objects of a page.
func (rq *Request) answerList(page registry.Page) error {
	rq.Trace.Stage("response")
	if page.Long() {
		if !rq.mayStream() {
			if err := page.Load(rq.Ctx); err != nil {
				return err
			}
		}
	}
	switch rq.Accept.Shape {
	case codec.AsTable:
		return rq.answerTable(http.StatusOK, page, false)
	case codec.AsPartialList:
		return rq.answerPartials(page)
	case codec.AsPartial:
		return codec.NotAcceptable(fmt.Sprintf("you requested PartialObjectMetadata, but the requested object is a list (*%sList)", rq.Endpoint.internalName()))
	}
	meta := listMeta(page)
	if rq.Accept.Media == codec.Protobuf {
		if page.Long() {
			return rq.streamLongProtobuf(page, rq.Endpoint.listEnvelope, rq.Endpoint.message)
		}
		return rq.answerProtobufList(page, meta)
	}
	return rq.answerJSONList(page, meta)
}

func listMeta(page registry.Page) metav1.ListMeta {
	return metav1.ListMeta{ResourceVersion: strconv.FormatInt(page.Revision, 10), Continue: page.Continue, RemainingItemCount: page.Remaining}
}

// buffers hold pieces of lists on their way out.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, chunk+chunk/4); return &b }}

// chunk is how much of a list is written at a time.
const chunk = 128 << 10

// listWriter gathers small pieces into large writes.
type listWriter struct {
	out io.Writer
	buf []byte
	err error
}

func (l *listWriter) flushIfFull() {
	if len(l.buf) >= chunk {
		l.flush()
	}
}

func (l *listWriter) flush() {
	if l.err == nil && len(l.buf) > 0 {
		_, l.err = l.out.Write(l.buf)
	}
	l.buf = l.buf[:0]
}

// write writes what is in one piece already.
func (l *listWriter) write(b []byte) {
	l.flush()
	if l.err == nil {
		_, l.err = l.out.Write(b)
	}
}

// cut ends the writing of an answer that the client does not read. In process nothing can be cut.
func (rq *Request) cut() { _ = http.NewResponseController(rq.W).SetWriteDeadline(time.Now()) }

// stream writes a body of the given size, exact or about, through pooled chunks. revision is that of a list that is the same for all who
// ask at that revision, or 0.
func (rq *Request) stream(size int, exact bool, revision int64, write func(*listWriter)) {
	if body := rq.zippedList(size, revision, write); body != nil {
		sayZipped(rq.W.Header())
		size, exact, write = len(body), true, func(l *listWriter) { l.write(body) }
		rq.streamTo(rq.W, size, exact, write)
		return
	}
	out, done := rq.compressed(size)
	defer done()
	rq.streamTo(out, size, exact && out == io.Writer(rq.W), write)
}

func (rq *Request) streamTo(out io.Writer, size int, exact bool, write func(*listWriter)) {
	if exact {
		rq.W.Header()["Content-Length"] = []string{strconv.Itoa(size)}
	}
	rq.header(http.StatusOK)
	if rq.Method == http.MethodHead {
		return
	}
	rq.W.heavy = rq.W.heavy || size > heavyRequest
	if size >= chunk { // less fits into buffers on the way
		defer context.AfterFunc(rq.Ctx, rq.cut)()
	}
	if err := writePieces(out, write); err != nil {
		panic(http.ErrAbortHandler) // the client must not take what it got for the whole
	}
}

// writePieces has a body written through a pooled buffer.
func writePieces(out io.Writer, write func(*listWriter)) error {
	buf := buffers.Get().(*[]byte)
	l := &listWriter{out: out, buf: (*buf)[:0]}
	write(l)
	l.flush()
	*buf = l.buf[:0]
	buffers.Put(buf)
	return l.err
}

// sendItems sends JSON that begins with head and ends with n items of about the given size in a list.
func (rq *Request) sendItems(code int, head []byte, n, typical int, item func(b []byte, i int) ([]byte, error)) error {
	var err error
	if n < streamItems || rq.rewritten() {
		for i := range n {
			if i > 0 {
				head = append(head, ',')
			}
			if head, err = item(head, i); err != nil {
				return err
			}
		}
		return rq.sendJSON(code, append(head, "]}"...))
	}
	rq.stream(n*typical, false, 0, func(l *listWriter) {
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

// streamItems is from how many items on they are sent in pieces.
const streamItems = 100

// answerProtobufList concatenates stored messages: field 1 of a list is its metadata, field 2 an item.
func (rq *Request) answerProtobufList(page registry.Page, meta metav1.ListMeta) error {
	raws := make([][]byte, len(page.Items))
	for i, it := range page.Items {
		raw, err := rq.Endpoint.message(it)
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
	rq.streamMessages(rq.Endpoint.listEnvelope, encoded, page.Revision, len(raws), sizeOf, func(b []byte, i int) []byte { return append(b, raws[i]...) })
	return nil
}

// streamMessages sends a list as protobuf: its metadata, and n items of known sizes.
func (rq *Request) streamMessages(head, meta []byte, revision int64, n int, sizeOf func(int) int, item func([]byte, int) []byte) {
	size := fieldSize(len(meta))
	for i := range n {
		size += fieldSize(sizeOf(i))
	}
	rq.stream(codec.EnvelopeSize(head, size), true, revision, func(l *listWriter) {
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

func fieldSize(n int) int {
	size := 1 + n + 1
	for v := n; v >= 0x80; v >>= 7 {
		size++
	}
	return size
}

func appendMessage(b []byte, number byte, message []byte) []byte {
	b = append(b, number<<3|2)
	b = binary.AppendUvarint(b, uint64(len(message)))
	return append(b, message...)
}

func (rq *Request) answerJSONList(page registry.Page, meta metav1.ListMeta) error {
	if page.Long() {
		head, err := longHead(rq.Endpoint.listHead, meta, `,"items":[`)
		if err != nil {
			return err
		}
		return rq.streamLong(page, head, rq.Endpoint.appendJSON)
	}
	bodies := make([][]byte, len(page.Items))
	size := 0
	if err := eachFromAnywhere(len(page.Items), func(i int) error {
		body, err := rq.Endpoint.json(page.Items[i])
		bodies[i] = body
		size += len(body) + 1
		return err
	}); err != nil {
		return err
	}
	m, err := json.Marshal(meta)
	if err != nil {
		return err
	}
	head := append([]byte(nil), rq.Endpoint.listHead...)
	head = append(head, `"metadata":`...)
	head = append(head, m...)
	head = append(head, `,"items":[`...)
	if rq.rewritten() {
		all := append(make([]byte, 0, len(head)+size+2), head...)
		for i, body := range bodies {
			if i > 0 {
				all = append(all, ',')
			}
			all = append(all, body...)
		}
		return rq.sendJSON(http.StatusOK, append(all, "]}"...))
	}
	if len(bodies) > 0 {
		size-- // one comma fewer than items
	}
	rq.stream(len(head)+size+3, true, page.Revision, func(l *listWriter) {
		l.buf = append(l.buf, head...)
		for i, body := range bodies {
			if i > 0 {
				l.buf = append(l.buf, ',')
			}
			l.buf = append(l.buf, body...)
			l.flushIfFull()
		}
		l.buf = append(l.buf, "]}\n"...)
	})
	return nil
}

// eachFromAnywhere calls f for 0 to n-1, starting somewhere: those who make what several need at once thus share the work instead of
// doing the same things at the same time.
func eachFromAnywhere(n int, f func(int) error) error {
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

// now is the time that cells of tables are told in.
func now() time.Time { return time.Now() }
