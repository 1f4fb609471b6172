package http2

import (
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// canonicalNames and wireNames map the lower-case names of usual headers, as HTTP/2 sends them, to those of net/http, and back, so that they need not be made
// for each request.
var (
	canonicalNames = map[string]string{}
	wireNames      = map[string]string{}
)

func init() {
	for _, name := range []string{"Accept", "Accept-Encoding", "Audit-Id", "Authorization", "Cache-Control", "Content-Encoding", "Content-Length", "Content-Type", "Date", "Etag", "Host",
		"Impersonate-Group", "Impersonate-User", "Kubectl-Command", "Kubectl-Session", "Last-Modified", "Retry-After", "Traceparent", "Trailer", "User-Agent", "Vary", "Warning",
		"X-Content-Type-Options", "X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid", "Skiff-Cause"} {
		lower := strings.ToLower(name)
		canonicalNames[lower], wireNames[name] = name, lower
	}
}

// canonical returns a header name as net/http writes it.
func canonical(name string) string {
	if known, ok := canonicalNames[name]; ok {
		return known
	}
	return http.CanonicalHeaderKey(name)
}

// wireName returns a header name as HTTP/2 sends it; ok is false if HTTP/2 does not send it.
func wireName(name string) (lower string, ok bool) {
	if known, ok := wireNames[name]; ok {
		return known, true
	}
	switch name {
	case "Connection", "Proxy-Connection", "Transfer-Encoding", "Upgrade", "Keep-Alive":
		return "", false
	}
	if !httpguts.ValidHeaderFieldName(name) {
		return "", false
	}
	return strings.ToLower(name), true
}
