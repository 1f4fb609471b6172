// Package identity tests, on whole servers and over the network, that a cluster is closed by default: who is authenticated and as whom, what each
// identity may do, that quotas hold, that tokens expire, and that no secret appears in an answer or a log.
//
// What kubectl prints about all this is compared with upstream in test/differential (auth.script).
//
// It must not import k8s.io/kubernetes: upstream is what skiff is compared with, never a part of it.
package identity
