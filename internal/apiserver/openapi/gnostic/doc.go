// Package gnostic converts OpenAPI documents from JSON into the protobuf form of github.com/google/gnostic, which client-go and kubectl
// request. The gnostic library itself converts by way of YAML, with 80 MB of garbage and in ten times the time for the Kubernetes API; here
// tables map JSON members to protobuf fields, and the bytes are rewritten in one pass, so that servers need not keep this form of their
// documents.
//
// The tables cover what Kubernetes' documents can contain, custom resources included: no cookies, callbacks, links, servers or OAuth.
// Unknown members are left out.
//
// It must not import anything else of skiff.
package gnostic
