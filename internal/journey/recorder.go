package journey

import (
	"hash/maphash"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Options are the options of New.
type Options struct {
	// Capacity is how many traces that wrote or had a cause are kept; 4096 if zero. A quarter of that is kept of other traces, the writers
	// of four times as many versions, up to twice as many spans of components in 512 bytes times Capacity, as many spans within requests in half of that, and
	// an eighth as many failures.
	Capacity int
	// Now returns the time; time.Now if nil.
	Now func() time.Time
}

// A Recorder keeps the traces of the last requests in memory.
type Recorder struct {
	now        func() time.Time // nil for the system's clock
	seed       maphash.Seed
	names      names
	versions   versions
	traces     ring
	reads      ring      // requests that only read; a separate ring because they are many and of little interest
	recordPool sync.Pool // of *record, for traces that have not ended

	spans      *byteRing
	calls      *byteRing // spans within requests; a separate ring because every write may have many
	failures   failures
	bufferPool sync.Pool // of *[]byte, for encoding spans
}

// New returns a Recorder and allocates all the memory that it will ever use, but for failures.
func New(o Options) *Recorder {
	if o.Capacity <= 0 {
		o.Capacity = 4096
	}
	r := &Recorder{
		now:      o.Now,
		seed:     maphash.MakeSeed(),
		versions: newVersions(4 * o.Capacity),
		traces:   newRing(o.Capacity),
		reads:    newRing(max(o.Capacity/4, 1)),
		spans:    newByteRing(max(512*o.Capacity, 2*maxSpan), 2*o.Capacity),
		calls:    newByteRing(max(256*o.Capacity, 2*maxSpan), o.Capacity),
		failures: failures{most: max(o.Capacity/8, 1)},
	}
	r.recordPool.New = func() any { return new(record) }
	r.bufferPool.New = func() any { return new([]byte) }
	return r
}

// Begin starts the trace of an HTTP request: it takes the trace id from the client's traceparent if there is one, the
// component from its user agent, and the causes from HeaderCause. Malformed headers are ignored.
func (r *Recorder) Begin(h http.Header, verb, resource, namespace, name string) *Trace {
	if r == nil {
		return nil
	}
	var o StartOptions
	if s := first(h, HeaderTraceparent); s != "" {
		o.Parent, _ = ParseTraceparent(s)
	}
	o.Component = component(first(h, "User-Agent"))
	t := r.Start(verb, resource, namespace, name, o)
	if s := first(h, HeaderCause); s != "" {
		causes, _ := ParseCauses(s)
		for _, c := range causes {
			t.Because(c.UID, c.Revision)
		}
	}
	return t
}

// component returns the component that a user agent names: its first word, or the service account of kube-system that a loop of kube-controller-manager acts as.
func component(agent string) string {
	const account = "/system:serviceaccount:kube-system:"
	if i := strings.LastIndex(agent, account); i >= 0 {
		return agent[i+len(account):]
	}
	name, _, _ := strings.Cut(agent, "/")
	return name
}

// first returns the same as h.Get for a key that is already in canonical form.
func first(h http.Header, key string) string {
	if values := h[key]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// StartOptions describe the client of a request.
type StartOptions struct {
	Parent    SpanContext // the client's span, if it sent one; the request continues its trace
	Component string      // the component that sent the request
}

// Start begins the trace of a request. The verb must be one of the server's ("create", "patch"), because verbs are interned. Without a
// parent the trace gets a new id.
func (r *Recorder) Start(verb, resource, namespace, name string, o StartOptions) *Trace {
	if r == nil {
		return nil
	}
	t := &Trace{recorder: r, start: r.time(), record: r.recordPool.Get().(*record)}
	t.context = SpanContext{Trace: o.Parent.Trace, Span: newSpanID()}
	if o.Parent.IsZero() {
		t.context.Trace = newTraceID()
	}
	t.record.reset(t.context, o.Parent.Span, t.start, r.names.id(verb))
	t.record.setText(resource, namespace, name, o.Component)
	return t
}

// Writer returns the request that wrote a version of an object, if it is still recorded.
func (r *Recorder) Writer(uid string, revision int64) (SpanContext, bool) {
	if r == nil {
		return SpanContext{}, false
	}
	return r.versions.writer(r.hash(uid), revision)
}

// Delivered records that a version of an object reaches its watchers now. Only the first call for a version has an effect; it may come
// before the writer's Wrote.
func (r *Recorder) Delivered(uid string, revision int64) {
	if r == nil || revision <= 0 {
		return
	}
	r.versions.delivered(r.hash(uid), revision, r.time().UnixNano())
}

// keep copies a record into its ring and returns it to the pool.
func (r *Recorder) keep(rec *record) {
	if rec.inJourney() {
		r.traces.put(rec)
	} else {
		r.reads.put(rec)
	}
	r.recordPool.Put(rec)
}

func (r *Recorder) hash(uid string) uint64 { return maphash.String(r.seed, uid) }

func (r *Recorder) time() time.Time {
	if r.now != nil {
		return r.now()
	}
	return time.Now()
}

// since returns the time since start. It does not read the wall clock, which is half the cost of time.Now.
func (r *Recorder) since(start time.Time) time.Duration {
	if r.now != nil {
		return r.now().Sub(start)
	}
	return time.Since(start)
}
