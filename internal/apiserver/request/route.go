package request

import (
	"net/http"
	"strings"
)

// Route is what the path and the method of a request say; upstream calls it RequestInfo.
type Route struct {
	Verb        string // get, list, watch, create, update, patch, delete, deletecollection; the HTTP method in lower case for other paths
	Resource    bool   // whether the path is that of a resource
	Group       string
	Version     string
	Namespace   string
	Plural      string
	Name        string
	Subresource string
	Rest        string // the path after the subresource, for proxies
	WatchPath   bool   // the path is of the deprecated form /api/v1/watch/…
}

// ParseRoute reads paths of the forms
//
//	/api/v1/namespaces/NS/pods/NAME/SUB          /apis/GROUP/VERSION/namespaces/NS/RESOURCE/NAME/SUB
//	/api/v1/pods                                 /apis/GROUP/VERSION/RESOURCE
//	/api/v1/nodes/NAME                           …
//
// and their deprecated watch forms (/api/v1/watch/…).
func ParseRoute(r *http.Request) Route {
	rt := Route{Verb: strings.ToLower(r.Method)}
	path := strings.Trim(r.URL.Path, "/")
	prefix, rest, _ := strings.Cut(path, "/")
	switch prefix {
	case "api":
		rt.Version, rest, _ = strings.Cut(rest, "/")
	case "apis":
		rt.Group, rest, _ = strings.Cut(rest, "/")
		rt.Version, rest, _ = strings.Cut(rest, "/")
	default:
		return rt
	}
	if rest == "" {
		return rt
	}
	rt.Resource = true
	watching := false
	if head, tail, more := strings.Cut(rest, "/"); more && head == "watch" {
		watching, rest = true, tail
		rt.WatchPath = true
	}
	parts := strings.SplitN(rest, "/", 6)
	if parts[0] == "namespaces" && len(parts) > 1 {
		// A namespace is itself an object: /namespaces/NS, /namespaces/NS/status and /namespaces/NS/finalize are about it.
		if len(parts) == 2 || len(parts) == 3 && (parts[2] == "status" || parts[2] == "finalize") {
			rt.Namespace, rt.Plural, rt.Name = parts[1], "namespaces", parts[1]
			if len(parts) == 3 {
				rt.Subresource = parts[2]
			}
			rt.Verb = verbOf(r, rt, watching)
			return rt
		}
		rt.Namespace, parts = parts[1], parts[2:]
	}
	rt.Plural = parts[0]
	if len(parts) > 1 {
		rt.Name = parts[1]
	}
	if len(parts) > 2 {
		rt.Subresource = parts[2]
	}
	if len(parts) > 3 {
		rt.Rest = strings.Join(parts[3:], "/")
	}
	rt.Verb = verbOf(r, rt, watching)
	return rt
}

func verbOf(r *http.Request, rt Route, watching bool) string {
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
		if rt.Name == "" {
			return "deletecollection"
		}
		return "delete"
	case http.MethodGet, http.MethodHead:
		switch {
		case watching:
			return "watch"
		case rt.Name != "":
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

// IsNamespace reports whether the path is that of a namespace itself, whose name then is both Name and Namespace.
func (rt *Route) IsNamespace() bool { return rt.Plural == "namespaces" && rt.Name == rt.Namespace }

// LongRunning reports whether a request lasts as long as its client wants: a watch, or a connection to what runs on a node.
func (rt *Route) LongRunning() bool { return rt.Verb == "watch" || rt.Connects() }

// Connects reports whether the subresource of a route leads to what runs on a node.
func (rt *Route) Connects() bool {
	switch rt.Subresource {
	case "attach", "exec", "log", "portforward", "proxy":
		return true
	}
	return false
}
