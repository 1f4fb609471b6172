package journey

// This is how the API server calls the journey. All methods do nothing on nil receivers.

import "net/http"

// Stages every request passes.
const (
	Authentication = "authentication"
	Authorization  = "authorization"
)

// Recorder keeps the latest traces.
type Recorder struct{}

// Options of a recorder.
type Options struct{}

// New makes a recorder.
func New(Options) *Recorder { return &Recorder{} }

// Trace is one request's record while it runs.
type Trace struct{}

// Begin starts the trace of a request, joining the one its traceparent header names and linking to the cause its cause header names.
func (r *Recorder) Begin(h http.Header, verb, resource, namespace, name string) *Trace { return nil }

// Delivered says that the version of an object has reached the caches, and so its watchers.
func (r *Recorder) Delivered(uid string, revision int64) {}

// Stage ends the stage before and begins the next.
func (t *Trace) Stage(name string) {}

// Wrote says which version of which object the request wrote.
func (t *Trace) Wrote(resource, uid string, revision int64) {}

// End ends the trace with the answer's code.
func (t *Trace) End(code int) {}
