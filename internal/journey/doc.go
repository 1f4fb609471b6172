// Package journey remembers what requests did and why: the causal traces behind `skiff journey` and `skiff why`.
//
// The API server starts a Trace for each request and marks its stages: authentication, authorization, each admission plugin,
// validation, the store. A write says which version of which object it made (Wrote); a request made because of an object names
// the version its maker had seen (Because, from the HeaderCause that package client sets). Since every version was written by
// some request, this joins requests into one tree, from `kubectl run` to the last status update. When the watch cache first
// hands a version to watchers it says so (Delivered), which ends the journey of the write itself.
//
// Recording must cost next to nothing: an API server does it for every request. A trace is one small allocation, no method waits
// for another request, and what is kept is a ring of fixed, pointer-free records that the garbage collector does not look into: 4,096
// requests that wrote or had a cause, 1,024 that only read, the writers of the last 16,384 versions, and 2 MB of spans; about 9 MB,
// never more, whatever clients send. Reading is for people and may be slow.
//
// Beside requests there is the work of components: a Span says what was done for which version of an object, from when to when. In the
// server's process it is kept at once (PutSpan); others post theirs in batches to PathSpans, with package client, so that no component
// writes tracing code by hand. Requests made within a span name it as their parent.
//
// Tree joins all of it into the journey of one object: up its causes to the request that began it, and down to everything that came of it.
// Draw writes a tree for people, with the critical path marked.
//
// Everything here is nil-safe: a nil *Recorder starts nil Traces, and a nil Trace takes every call and does nothing.
//
// The package knows headers and nothing else of HTTP, and no Kubernetes types.
package journey
