// Package response answers requests for resources. It has the encodings of objects, lists and tables as JSON, YAML and protobuf, the frames of watch
// events, WebSockets, compression, Statuses of errors, and the Writer that bounds how long a response waits for its client. It is the last step of a
// request's journey: verbs and subresources decide what the answer is, a Responder sends it.
//
// It must not import verbs, subresources, nonresource, front or the API server itself, which all answer through it.
package response
