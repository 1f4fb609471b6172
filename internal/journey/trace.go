package journey

import (
	"sync"
	"time"
)

// Stages every request passes; those of verbs and of admission plugins are named where they are.
const (
	Authentication = "authentication"
	Authorization  = "authorization"

	// WatchDelivery is not marked but follows from Delivered: from the write until watchers got it.
	WatchDelivery = "watch delivery"
)

// A Trace records one request. Its methods may be called from any goroutine; after End, and on a nil Trace, they do nothing.
type Trace struct {
	recorder *Recorder
	context  SpanContext
	start    time.Time

	mu     sync.Mutex
	record *record // on loan from the recorder until End
}

// Context identifies the request, for headers and logs. It is zero for a nil Trace.
func (t *Trace) Context() SpanContext {
	if t == nil {
		return SpanContext{}
	}
	return t.context
}

// Stage ends the stage before and begins the named one. Names are constants, or strings made once: the recorder keeps a
// table of them. Past the 32nd stage the last one goes on.
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

// By says who asks, once that is known.
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

// Named says what a new object is called, which a request that creates it may have left to the server.
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

// Wrote says which version of which object this request made. Call it as soon as the store has answered. Of requests that write
// many objects the first four are listed; Writer knows all.
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

// Because says that this request is made because of that version of an object. If the version's writer is not known yet, which
// can be for a moment after a write, it is looked up again when the trace is read.
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

// End closes the trace with the HTTP status of the answer and keeps it.
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
