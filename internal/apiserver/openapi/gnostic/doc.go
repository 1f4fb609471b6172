// Package gnostic turns OpenAPI documents from JSON into the protobuf form of github.com/google/gnostic, which client-go
// and kubectl ask for. The gnostic library itself does it by way of YAML, with 80 MB of garbage and in ten times the time for
// the Kubernetes API; here tables say which JSON member becomes which protobuf field, and the bytes are rewritten in one
// pass, so that servers need not keep this form of their documents.
//
// The tables have what Kubernetes' documents can contain, custom resources included: no cookies, callbacks, links,
// servers or OAuth. A member they do not know is left out.
package gnostic
