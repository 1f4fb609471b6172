package journey

import (
	"sync"
	"time"
)

// Stages that every request passes; the stages of verbs and of admission plugins are named where they are implemented.
const (
	Authentication = "authentication"
	Authorization  = "authorization"

	// WatchDelivery is the stage from a write until watchers got it. It is computed from Delivered, not marked.
	WatchDelivery = "watch delivery"
)

// A Trace records one request. Its methods may be called from any goroutine; after End, and on a nil Trace, they do nothing.
type Trace struct {
	recorder *Recorder
	context  SpanContext
	start    time.Time

	mu     sync.Mutex
	record *record // taken from the recorder's pool; nil after End
}

// Context returns the request's span context, for headers and logs. It is zero for a nil Trace.
func (t *Trace) Context() SpanContext {
	if t == nil {
		return SpanContext{}
	}
	return t.context
}

// Stage ends the current stage and begins the named one. Names must be constants, or strings made once, because the recorder interns
// them. After the 32nd stage further calls have no effect.
func (t *Trace) Stage(name string) {
	if t == nil {
		return
	}
	id, at := t.recorder.names.id(name), t.recorder.since(t.start)
	t.mu.Lock()
	if t.record != nil {
		t.record.addStage(id, at)
	}
	t.mu.Unlock()
}

// By records the user of the request, once it is authenticated.
func (t *Trace) By(user string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.record != nil {
		t.record.user = t.record.addText(user)
	}
}

// Named records the name of a new object, if the request left it to the server (generateName).
func (t *Trace) Named(name string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.record != nil && t.record.name.from == t.record.name.to {
		t.record.name = t.record.addText(name)
	}
}

// Wrote records which version of which object this request made. Call it as soon as the store has answered. Of a request that writes
// many objects the trace lists the first four; Writer finds all.
func (t *Trace) Wrote(resource, uid string, revision int64) {
	if t == nil || revision <= 0 {
		return
	}
	id, at := t.recorder.names.id(resource), t.recorder.since(t.start)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.record != nil {
		t.record.addWrite(id, uid, revision, at)
		t.recorder.versions.wrote(t.recorder.hash(uid), revision, t.context)
	}
}

// Because records that this request is made because of a version of an object. If the version's writer is not known yet, which
// happens for a moment after a write, it is looked up again when the trace is read.
func (t *Trace) Because(uid string, revision int64) {
	if t == nil || revision <= 0 {
		return
	}
	writer, _ := t.recorder.Writer(uid, revision)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.record != nil {
		t.record.addCause(uid, revision, writer)
	}
}

// Span records a piece of work within the request. The ids of the span are set here.
func (t *Trace) Span(s Span) {
	if t == nil {
		return
	}
	s.SpanContext, s.Parent = NewSpanContext(t.context), t.context.Span
	s.Clip()
	t.recorder.putSpan(t.recorder.calls, &s)
}

// End ends the trace with the HTTP status of the response and stores it in the recorder.
func (t *Trace) End(code int) {
	if t == nil {
		return
	}
	took := t.recorder.since(t.start)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.record != nil {
		t.record.took, t.record.code = took, int32(code)
		t.recorder.keep(t.record)
		t.record = nil
	}
}
