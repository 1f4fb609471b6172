// Package legacytoken deletes tokens in Secrets that the control plane once generated for every service account, which Kubernetes 1.24 ended, and
// that nobody has used for a year: first it labels them invalid, and a year later, if still nobody has missed them, it deletes them.
//
// Such a token is known by its service account, which names the Secret: a Secret that a person made is not named there. When a token was used last
// is a label that the API server writes, and a ConfigMap says since when it does.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package legacytoken
