// Package journey records what requests did and why: the causal traces behind `skiff journey` and `skiff why`.
//
// The API server starts a Trace for each request and marks its stages: authentication, authorization, each admission plugin,
// validation, the store. Wrote records which version of which object a request made; Because records the version that a request was made
// because of, as the client observed it (from the HeaderCause that package client sets). Since every version was written by
// some request, this joins requests into one tree, from `kubectl run` to the last status update. Delivered records when the watch cache first
// hands a version to watchers, which ends the journey of the write itself.
//
// Recording must cost next to nothing: an API server does it for every request. A trace is one small allocation, no method waits
// for another request, and the records are kept in rings of fixed size without pointers for the garbage collector to follow: 4,096
// requests that wrote or had a cause, 1,024 that only read, the writers of the last 16,384 versions, 2 MB of spans of components and 1 MB of spans within
// requests; about 10 MB, and less than one more of failures, whatever clients send. Reading is for people and may be slow.
//
// Besides requests there are the spans of components: a Span records what was done for which version of an object, from when to when. In the
// server's process it is recorded at once (PutSpan); other processes post their spans in batches to PathSpans, with package client, so that no component
// writes tracing code by hand. Requests made within a span name it as their parent.
//
// Within a request there are spans too: a webhook that was called, a policy that was evaluated, with its verdict. One that refused the write, or failed, is
// also a Failure. A write that was refused leaves no version that its journey could be found by, so failures are kept by the object's name: the last 512,
// each once, with the number of times.
//
// Tree joins all of it into the journey of one object: up its causes to the request that began it, and down to everything that it caused.
// Draw writes a tree for people, with the critical path marked.
//
// All methods are nil-safe: a nil *Recorder starts nil Traces, and the methods of a nil Trace do nothing.
//
// The package knows HTTP headers and status codes, and no Kubernetes types. It must not import any other package of skiff.
package journey
