// Package abac allows what a policy file allows: the mode ABAC of --authorization-mode, with the file of --authorization-policy-file.
//
// The file has a policy per line, as JSON: a Policy of abac.authorization.kubernetes.io/v1beta1, or the older form without apiVersion and kind. Empty lines
// and lines that begin with # are skipped. A policy allows, and never denies; a request is allowed if any policy matches it. The file is read once, when
// the server starts: a change needs a restart, as upstream.
//
// What differs from upstream: a field that a policy does not have is logged as a warning, since a misspelt "readonly" allows writes; a file is at most 16 MiB.
//
// It must not import another mode of authorization, nor the API server's root package, its store or its cache.
package abac
