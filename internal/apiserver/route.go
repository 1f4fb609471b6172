package apiserver

import (
	"net/http"
	"strings"
)

// route is what a request's path and method say.
type route struct {
	verb        string // get, list, watch, create, update, patch, delete, deletecollection; the HTTP method in lower case for other paths
	resource    bool   // the path is that of a resource
	group       string
	version     string
	namespace   string
	plural      string
	name        string
	subresource string
	rest        string // what follows the subresource, for proxies
	all         bool   // a collection over all namespaces
}

// parseRoute reads paths of the forms
//
//	/api/v1/namespaces/NS/pods/NAME/SUB          /apis/GROUP/VERSION/namespaces/NS/RESOURCE/NAME/SUB
//	/api/v1/pods                                 /apis/GROUP/VERSION/RESOURCE
//	/api/v1/nodes/NAME                           …
//
// and their old watch forms (/api/v1/watch/…).
func parseRoute(r *http.Request) route {
	rt := route{verb: strings.ToLower(r.Method)}
	path := strings.Trim(r.URL.Path, "/")
	prefix, rest, _ := strings.Cut(path, "/")
	switch prefix {
	case "api":
		rt.version, rest, _ = strings.Cut(rest, "/")
	case "apis":
		rt.group, rest, _ = strings.Cut(rest, "/")
		rt.version, rest, _ = strings.Cut(rest, "/")
	default:
		return rt
	}
	if rest == "" {
		return rt
	}
	rt.resource = true
	watching := false
	if head, tail, more := strings.Cut(rest, "/"); more && head == "watch" {
		watching, rest = true, tail
	}
	parts := strings.SplitN(rest, "/", 6)
	if parts[0] == "namespaces" && len(parts) > 1 {
		// A namespace is itself an object: /namespaces/NS, /namespaces/NS/status and /namespaces/NS/finalize are about it.
		if len(parts) == 2 || len(parts) == 3 && (parts[2] == "status" || parts[2] == "finalize") {
			rt.namespace, rt.plural, rt.name = parts[1], "namespaces", parts[1]
			if len(parts) == 3 {
				rt.subresource = parts[2]
			}
			rt.verb = verbOf(r, rt, watching)
			return rt
		}
		rt.namespace, parts = parts[1], parts[2:]
	}
	rt.plural = parts[0]
	if len(parts) > 1 {
		rt.name = parts[1]
	}
	if len(parts) > 2 {
		rt.subresource = parts[2]
	}
	if len(parts) > 3 {
		rt.rest = strings.Join(parts[3:], "/")
	}
	rt.all = rt.namespace == "" && rt.name == ""
	rt.verb = verbOf(r, rt, watching)
	return rt
}

func verbOf(r *http.Request, rt route, watching bool) string {
	if watching && r.Method != http.MethodGet {
		return strings.ToLower(r.Method)
	}
	switch r.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if rt.name == "" {
			return "deletecollection"
		}
		return "delete"
	case http.MethodGet, http.MethodHead:
		switch {
		case watching:
			return "watch"
		case rt.name != "":
			return "get"
		case asksToWatch(r):
			return "watch"
		}
		return "list"
	}
	return strings.ToLower(r.Method)
}

func asksToWatch(r *http.Request) bool {
	if !strings.Contains(r.URL.RawQuery, "watch=") {
		return false
	}
	switch r.URL.Query().Get("watch") {
	case "", "0", "false":
		return false
	}
	return true
}
