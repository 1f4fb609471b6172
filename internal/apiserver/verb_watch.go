package apiserver

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/registry"
	"skiff/internal/cache"
	"skiff/internal/catalog"
)

const (
	// bookmarkEvery is how often a watcher that asks for bookmarks gets one if nothing else comes.
	bookmarkEvery = time.Minute
	// minWatch and maxWatch bound how long a watch without timeoutSeconds lasts, so that watchers spread over servers.
	minWatch = 30 * time.Minute
	maxWatch = time.Hour
	// stuckAfter is how long a watcher may leave unread what was written.
	stuckAfter = 30 * time.Second
	// watchBatch is how many changes are taken and written at once.
	watchBatch = 256
)

// watch streams changes until the client goes, the time is over or the server stops.
func (rq *request) watch() error {
	accept, err := codec.Negotiate(rq.Header.Get("Accept"), codec.AsTable, codec.AsPartial)
	if err != nil {
		return err
	}
	rq.accept = accept
	opts, err := parseListOptions(rq.query)
	if err != nil {
		return err
	}
	if err := registry.ValidateListOptions(opts, true); err != nil {
		return err
	}
	fieldSelector := opts.FieldSelector
	if rq.route.name != "" {
		if fieldSelector != "" {
			fieldSelector += ","
		}
		fieldSelector += "metadata.name=" + rq.route.name
	}
	selector, err := rq.end.registry.NewSelector(rq.end.info, rq.route.namespace, opts.LabelSelector, fieldSelector)
	if err != nil {
		return err
	}
	frames, err := rq.frames()
	if err != nil {
		return err
	}
	timeout := minWatch + rand.N(maxWatch-minWatch)
	if opts.TimeoutSeconds != nil && *opts.TimeoutSeconds > 0 {
		timeout = time.Duration(*opts.TimeoutSeconds) * time.Second
	}
	ctx, cancel := context.WithTimeout(rq.ctx, timeout)
	defer cancel()
	stop := context.AfterFunc(rq.server.stopping, cancel)
	defer stop()
	s := &watchStream{rq: rq, selector: selector, frames: frames, opts: opts, all: selector.All() && selector.Namespace == ""}
	switch err := s.open(ctx); {
	case err == nil:
	case apierrors.IsResourceExpired(err), apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		// Clients that resume watches look for these in the stream.
		s.begin()
		s.refuse(statusOf(err))
		return nil
	default:
		return err
	}
	defer s.watch.Close()
	s.watch.Patient = true
	defer rq.end.registry.Cache.Watching()()
	s.run(ctx)
	return nil
}

// watchStream is one watcher: a place in the stream of changes and a way to write them.
type watchStream struct {
	rq       *request
	selector registry.Selector
	all      bool // every change concerns this watcher
	frames   framer
	opts     *metav1.ListOptions
	watch    *registry.Watch
	initial  []*cache.Item
	revision int64 // of the initial state
	begun    bool  // with an initial state
	buf      []byte
	stuck    *time.Timer // cuts a watcher that does not read; runs while something is written
}

// open finds the place to start from, which can still fail with a proper answer.
func (s *watchStream) open(ctx context.Context) (err error) {
	reg := s.rq.end.registry
	version := s.opts.ResourceVersion
	wantsInitial := s.opts.SendInitialEvents != nil && *s.opts.SendInitialEvents
	if s.opts.SendInitialEvents == nil && (version == "" || version == "0") { // as watches began before they could say what they want
		wantsInitial = true
		s.opts.SendInitialEvents = &wantsInitial
	}
	after, err := registry.ParseResourceVersion(version)
	if err != nil {
		return err
	}
	if wantsInitial || after == 0 {
		if err := reg.WaitFor(ctx, version); err != nil {
			return err
		}
		s.initial, s.revision, s.watch = reg.WatchFromNow(ctx, s.selector)
		s.begun = wantsInitial
		if !wantsInitial {
			s.initial = nil
		}
		return nil
	}
	s.watch, err = reg.Watch(ctx, s.selector, after)
	return err
}

// begin answers that a stream follows.
func (s *watchStream) begin() {
	h := s.rq.w.Header()
	h["Content-Type"] = []string{s.frames.contentType()}
	h["Cache-Control"] = noCache
	s.rq.w.WriteHeader(http.StatusOK)
	s.stuck = time.AfterFunc(stuckAfter, s.rq.cut)
	s.flush()
}

// refuse ends the stream with an error.
func (s *watchStream) refuse(status metav1.Status) {
	s.buf = s.frames.failure(s.buf, status)
	s.flush()
}

func (s *watchStream) run(ctx context.Context) {
	s.begin()
	if s.begun && !s.sendInitial() {
		return
	}
	changes := make([]*cache.Change, 0, watchBatch)
	for s.follow(ctx, changes) {
		if s.opts.AllowWatchBookmarks && !s.bookmark(s.watch.Seen(), false) {
			return
		}
	}
}

// follow sends changes until it is time for a bookmark. It returns false if the watch is over.
func (s *watchStream) follow(ctx context.Context, changes []*cache.Change) bool {
	tick, stop := context.WithTimeout(ctx, bookmarkEvery)
	defer stop()
	for {
		got, err := s.watch.Next(tick, changes[:0])
		switch {
		case err == nil:
			if !s.send(got) {
				return false
			}
		case ctx.Err() != nil:
			return false
		case errors.Is(err, context.DeadlineExceeded):
			return true
		default:
			s.refuse(statusOf(err))
			return false
		}
	}
}

// sendInitial sends the state the watch begins with, and says when it is complete if the client asked so.
func (s *watchStream) sendInitial() bool {
	for _, it := range s.initial {
		b, err := s.frames.event(s.buf, &cache.Change{Type: cache.Added, Item: it}, cache.Added, it, false)
		if err != nil {
			return s.fail(err)
		}
		if s.buf = b; len(s.buf) >= chunk && !s.flush() {
			return false
		}
	}
	s.initial = nil
	if s.opts.SendInitialEvents != nil && s.opts.AllowWatchBookmarks {
		return s.bookmark(s.revision, true)
	}
	return s.flush()
}

// send writes the changes that concern this watcher, all at once.
func (s *watchStream) send(changes []*cache.Change) bool {
	for _, c := range changes {
		kind, it, shared := c.Type, c.Item, true
		if !s.all {
			if kind, it = s.selector.Event(c); it == nil {
				continue
			}
			shared = kind == c.Type
		}
		b, err := s.frames.event(s.buf, c, kind, it, shared)
		if err != nil {
			return s.fail(err)
		}
		if s.buf = b; len(s.buf) >= chunk && !s.flush() {
			return false
		}
	}
	return s.flush()
}

func (s *watchStream) bookmark(revision int64, initialEnd bool) bool {
	obj := s.rq.end.info.New().(catalog.Object)
	obj.SetResourceVersion(strconv.FormatInt(revision, 10))
	if initialEnd {
		obj.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	b, err := s.frames.object(s.buf, "BOOKMARK", obj)
	if err != nil {
		return s.fail(err)
	}
	s.buf = b
	return s.flush()
}

func (s *watchStream) fail(err error) bool {
	s.refuse(statusOf(apierrors.NewInternalError(err)))
	return false
}

// flush sends what has been gathered.
func (s *watchStream) flush() bool {
	s.stuck.Reset(stuckAfter)
	defer s.stuck.Stop()
	if len(s.buf) > 0 {
		if _, err := s.rq.w.Write(s.buf); err != nil {
			return false
		}
		if s.buf = s.buf[:0]; cap(s.buf) > 2*chunk {
			s.buf = nil
		}
	}
	if f, ok := s.rq.w.(http.Flusher); ok {
		f.Flush()
	}
	return true
}

// framer encodes watch events in one encoding.
type framer interface {
	contentType() string
	// event appends an event. shared says that the same event goes to every watcher of this encoding, so it is worth keeping.
	event(b []byte, c *cache.Change, kind cache.ChangeType, it *cache.Item, shared bool) ([]byte, error)
	object(b []byte, kind string, obj catalog.Object) ([]byte, error)
	failure(b []byte, status metav1.Status) []byte
}

func (rq *request) frames() (framer, error) {
	switch {
	case rq.accept.Shape == codec.AsTable:
		opts, err := rq.tableOptions()
		return &tableFrames{jsonFrames: jsonFrames{rq.end}, version: rq.accept.Version, opts: opts, first: true}, err
	case rq.accept.Shape == codec.AsPartial:
		return partialFrames{jsonFrames{rq.end}, rq.accept.Version, rq.accept.Media == codec.Protobuf}, nil
	case rq.accept.Media == codec.Protobuf:
		return protobufFrames{rq.end}, nil
	default:
		return jsonFrames{rq.end}, nil // YAML has no streaming form
	}
}

type jsonFrames struct{ end *endpoint }

func (jsonFrames) contentType() string { return codec.JSONType }

func (f jsonFrames) event(b []byte, c *cache.Change, kind cache.ChangeType, it *cache.Item, shared bool) ([]byte, error) {
	var failure error
	encode := func(*cache.Change) []byte {
		body, err := f.end.json(it)
		if err != nil {
			failure = err
			return nil
		}
		frame := make([]byte, 0, len(body)+len(f.end.jsonHead)+32)
		frame = append(append(append(frame, `{"type":"`...), kind...), `","object":`...)
		frame = codec.AppendKind(frame, f.end.jsonHead, body)
		return append(frame, "}\n"...)
	}
	if shared && f.end.plain() {
		return append(b, c.Frame(cache.FrameJSON, encode)...), failure
	}
	return append(b, encode(c)...), failure
}

func (f jsonFrames) object(b []byte, kind string, obj catalog.Object) ([]byte, error) {
	body, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	b = append(append(append(b, `{"type":"`...), kind...), `","object":`...)
	b = codec.AppendKind(b, f.end.jsonHead, body)
	return append(b, "}\n"...), nil
}

func (jsonFrames) failure(b []byte, status metav1.Status) []byte {
	body := codec.Status(&status, codec.Accepted{})
	b = append(b, `{"type":"ERROR","object":`...)
	b = append(b, body[:len(body)-1]...)
	return append(b, "}\n"...)
}

type protobufFrames struct{ end *endpoint }

func (protobufFrames) contentType() string { return codec.ProtobufType + ";stream=watch" }

func (f protobufFrames) event(b []byte, c *cache.Change, kind cache.ChangeType, it *cache.Item, shared bool) ([]byte, error) {
	var failure error
	encode := func(*cache.Change) []byte {
		message, err := f.end.message(it)
		if err != nil {
			failure = err
			return nil
		}
		return appendFrame(nil, string(kind), f.end.envelope, message)
	}
	if shared && f.end.plain() {
		return append(b, c.Frame(cache.FrameProtobuf, encode)...), failure
	}
	return append(b, encode(c)...), failure
}

func (f protobufFrames) object(b []byte, kind string, obj catalog.Object) ([]byte, error) {
	message, err := obj.Marshal()
	if err != nil {
		return nil, err
	}
	return appendFrame(b, kind, f.end.envelope, message), nil
}

func (protobufFrames) failure(b []byte, status metav1.Status) []byte {
	message, err := status.Marshal()
	if err != nil {
		return b
	}
	return appendFrame(b, "ERROR", codec.EnvelopeHead(codec.StatusKind), message)
}

// appendFrame appends a watch event in protobuf: its length in four bytes, then a WatchEvent (field 1 its type, field 2 a
// RawExtension whose field 1 is the enveloped object).
func appendFrame(b []byte, kind string, head, message []byte) []byte {
	envelope := codec.EnvelopeSize(head, len(message))
	extension := fieldSize(envelope)
	size := fieldSize(len(kind)) + fieldSize(extension)
	b = binary.BigEndian.AppendUint32(b, uint32(size))
	b = appendMessage(b, 1, []byte(kind))
	b = append(b, 2<<3|2)
	b = binary.AppendUvarint(b, uint64(extension))
	b = append(b, 1<<3|2)
	b = binary.AppendUvarint(b, uint64(envelope))
	return codec.AppendEnvelope(b, head, message)
}

// partialFrames carry PartialObjectMetadata.
type partialFrames struct {
	jsonFrames
	version  string
	protobuf bool
}

func (f partialFrames) contentType() string {
	if f.protobuf {
		return protobufFrames{}.contentType()
	}
	return codec.JSONType
}

func (f partialFrames) event(b []byte, _ *cache.Change, kind cache.ChangeType, it *cache.Item, _ bool) ([]byte, error) {
	meta, err := codec.Metadata(it.Raw())
	if err != nil {
		return nil, err
	}
	return f.partial(b, string(kind), *meta)
}

func (f partialFrames) object(b []byte, kind string, obj catalog.Object) ([]byte, error) {
	return f.partial(b, kind, *metaOf(obj))
}

func (f partialFrames) failure(b []byte, status metav1.Status) []byte {
	if f.protobuf {
		return protobufFrames{f.end}.failure(b, status)
	}
	return f.jsonFrames.failure(b, status)
}

func (f partialFrames) partial(b []byte, kind string, meta metav1.ObjectMeta) ([]byte, error) {
	gvk := metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata")
	gvk.Version = f.version
	partial := &metav1.PartialObjectMetadata{ObjectMeta: meta}
	if f.protobuf {
		message, err := partial.Marshal()
		if err != nil {
			return nil, err
		}
		return appendFrame(b, kind, codec.EnvelopeHead(gvk), message), nil
	}
	body, err := json.Marshal(partial)
	if err != nil {
		return nil, err
	}
	b = append(append(append(b, `{"type":"`...), kind...), `","object":`...)
	b = codec.AppendKind(b, jsonHead(gvk), body)
	return append(b, "}\n"...), nil
}

// tableFrames carry a table of one row each; only the first has columns.
type tableFrames struct {
	jsonFrames
	version string
	opts    tableOptions
	first   bool
}

func (f *tableFrames) event(b []byte, _ *cache.Change, kind cache.ChangeType, it *cache.Item, _ bool) ([]byte, error) {
	b = f.open(b, string(kind), it.Revision)
	b, err := f.end.appendRow(b, it, f.opts.include, f.version, now())
	return append(b, "]}}\n"...), err
}

func (f *tableFrames) object(b []byte, kind string, obj catalog.Object) ([]byte, error) {
	revision, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return nil, err
	}
	partial, err := partialJSON(obj, f.version)
	if err != nil {
		return nil, err
	}
	b = f.open(b, kind, revision)
	b = append(append(append(b, `{"cells":null,"object":`...), partial...), '}')
	return append(b, "]}}\n"...), nil
}

func (f *tableFrames) open(b []byte, kind string, revision int64) []byte {
	b = append(append(append(b, `{"type":"`...), kind...), `","object":`...)
	b = append(b, `{"kind":"Table","apiVersion":"meta.k8s.io/`...)
	b = append(append(b, f.version...), `","metadata":{"resourceVersion":"`...)
	b = strconv.AppendInt(b, revision, 10)
	b = append(b, `"},"columnDefinitions":`...)
	if f.first {
		b = append(b, f.end.columns()...)
		f.first = false
	} else {
		b = append(b, "null"...)
	}
	return append(b, `,"rows":[`...)
}
