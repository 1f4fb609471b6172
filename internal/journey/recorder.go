package journey

import (
	"hash/maphash"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Options of New.
type Options struct {
	// Capacity is how many traces that wrote or had a cause are kept; 4096 if zero. A quarter of that is kept of others.
	// The writers of four times as many versions are known. Of components' spans up to twice as many are kept, in 512 bytes times Capacity.
	Capacity int
	// Now is the clock; the system's if nil.
	Now func() time.Time
}

// A Recorder keeps the traces of the last requests in memory.
type Recorder struct {
	now      func() time.Time // nil for the system's
	seed     maphash.Seed
	names    names
	versions versions
	journeys ring
	glances  ring      // requests that only looked; in a ring of their own, for they are many and say little
	spare    sync.Pool // of *record, for traces that have not ended

	spans     *tape
	encodings sync.Pool // of *[]byte, for spans on their way to the tape
}

// New makes a Recorder with all the memory it will ever use.
func New(o Options) *Recorder {
	if o.Capacity <= 0 {
		o.Capacity = 4096
	}
	r := &Recorder{
		now:      o.Now,
		seed:     maphash.MakeSeed(),
		versions: newVersions(4 * o.Capacity),
		journeys: newRing(o.Capacity),
		glances:  newRing(max(o.Capacity/4, 1)),
		spans:    newTape(max(512*o.Capacity, 2*maxSpan), 2*o.Capacity),
	}
	r.spare.New = func() any { return new(record) }
	r.encodings.New = func() any { return new([]byte) }
	return r
}

// Begin starts the trace of an HTTP request: it goes on under the id of the client's traceparent if there is one, names the
// client by its user agent (see component), and links to the causes it gives. What is malformed counts as not sent.
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

// component is whom a user agent names: its first word, or the service account of kube-system that a loop of kube-controller-manager acts as.
func component(agent string) string {
	const account = "/system:serviceaccount:kube-system:"
	if i := strings.LastIndex(agent, account); i >= 0 {
		return agent[i+len(account):]
	}
	name, _, _ := strings.Cut(agent, "/")
	return name
}

// first is h.Get of a key that is in canonical form already.
func first(h http.Header, key string) string {
	if values := h[key]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// StartOptions is what is known of a request beside what it asks for.
type StartOptions struct {
	Parent    SpanContext // the client's own span, if it sent one; the trace goes on under its id
	Component string      // who asks, in a word
}

// Start begins the trace of a request. The verb is the server's word ("create", "patch"): there is a table of those. Without a
// parent the trace gets an id of its own.
func (r *Recorder) Start(verb, resource, namespace, name string, o StartOptions) *Trace {
	if r == nil {
		return nil
	}
	t := &Trace{recorder: r, start: r.time(), record: r.spare.Get().(*record)}
	t.context = SpanContext{Trace: o.Parent.Trace, Span: newSpanID()}
	if o.Parent.IsZero() {
		t.context.Trace = newTraceID()
	}
	t.record.reset(t.context, o.Parent.Span, t.start, r.names.id(verb))
	t.record.setText(resource, namespace, name, o.Component)
	return t
}

// Writer finds the request that wrote a version of an object, if it is among the last.
func (r *Recorder) Writer(uid string, revision int64) (SpanContext, bool) {
	if r == nil {
		return SpanContext{}, false
	}
	return r.versions.writer(r.hash(uid), revision)
}

// Delivered says that a version of an object reaches its watchers now. Only the first call for a version counts; it may come
// before the writer's Wrote.
func (r *Recorder) Delivered(uid string, revision int64) {
	if r == nil || revision <= 0 {
		return
	}
	r.versions.delivered(r.hash(uid), revision, r.time().UnixNano())
}

// keep copies a record into its ring and takes it back.
func (r *Recorder) keep(rec *record) {
	if rec.matters() {
		r.journeys.put(rec)
	} else {
		r.glances.put(rec)
	}
	r.spare.Put(rec)
}

func (r *Recorder) hash(uid string) uint64 { return maphash.String(r.seed, uid) }

func (r *Recorder) time() time.Time {
	if r.now != nil {
		return r.now()
	}
	return time.Now()
}

// since avoids reading the wall clock, which is half the cost of time.Now.
func (r *Recorder) since(start time.Time) time.Duration {
	if r.now != nil {
		return r.now().Sub(start)
	}
	return time.Since(start)
}
