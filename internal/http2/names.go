package http2

import (
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Header names as net/http writes them, by those on the wire, and back: for the usual ones, so that they need not be made for each request.
var (
	fromWire = map[string]string{}
	toWire   = map[string]string{}
)

func init() {
	for _, name := range []string{"Accept", "Accept-Encoding", "Audit-Id", "Authorization", "Cache-Control", "Content-Encoding", "Content-Length", "Content-Type", "Date", "Etag", "Host",
		"Impersonate-Group", "Impersonate-User", "Kubectl-Command", "Kubectl-Session", "Last-Modified", "Retry-After", "Traceparent", "Trailer", "User-Agent", "Vary", "Warning",
		"X-Content-Type-Options", "X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid", "Skiff-Cause"} {
		lower := strings.ToLower(name)
		fromWire[lower], toWire[name] = name, lower
	}
}

// canonical is a header name as net/http writes it.
func canonical(name string) string {
	if known, ok := fromWire[name]; ok {
		return known
	}
	return http.CanonicalHeaderKey(name)
}

// wireName is a header name as it is sent, unless it is one that HTTP/2 does not send.
func wireName(name string) (string, bool) {
	if known, ok := toWire[name]; ok {
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
