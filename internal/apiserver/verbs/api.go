package verbs

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/conversion"
	"skiff/internal/apiserver/metrics"
	"skiff/internal/apiserver/request"
	"skiff/internal/apiserver/response"
	"skiff/internal/catalog"
)

// API has the resources that a server serves, and what every request for one of them needs. It does not change once the server is ready, but for Ready
// and for what is served.
type API struct {
	served atomic.Pointer[Served]
	// Handlers serve the resources and subresources that no generic verb serves.
	Handlers   map[HandlerKey]Handler
	Admission  admission.Chain
	Authorizer authz.Authorizer
	Metrics    *metrics.Metrics
	MinWatch   time.Duration // how long a watch without timeoutSeconds lasts at least
	Ready      atomic.Bool   // requests are refused until it is set
	response.Shared
}

// Served has the resources that a server serves at one time. It is never changed: when a custom resource comes or goes, another takes its place.
type Served struct {
	Infos     []*catalog.Info // of all resources, in the order of discovery
	Endpoints map[schema.GroupVersionResource]*Endpoint
}

// Served returns what is served now.
func (api *API) Served() *Served { return api.served.Load() }

// Replace replaces what is served.
func (api *API) Replace(served *Served) { api.served.Store(served) }

// HandlerKey names a resource, or a subresource of one, that a Handler serves.
type HandlerKey struct {
	Resource    schema.GroupResource
	Subresource string
}

// Handler serves all requests for what it is registered under.
type Handler func(*Request) error

// Endpoint returns the endpoint of a resource; nil if it is not served.
func (api *API) Endpoint(group, version, plural string) *Endpoint {
	return api.Served().Endpoints[schema.GroupVersionResource{Group: group, Version: version, Resource: plural}]
}

// Serve takes a request to the endpoint of its resource and there to its verb, or to a Handler if no verb serves it.
func (api *API) Serve(rq *Request) error {
	if !api.Ready.Load() {
		return apierrors.NewServiceUnavailable("the server is starting or stopping")
	}
	rt := rq.Route
	if rq.Endpoint = api.Endpoint(rt.Group, rt.Version, rt.Plural); rq.Endpoint == nil {
		return api.notServed(rt.Group)
	}
	rq.Resource = rq.Endpoint.Resource
	if rq.URL.RawQuery != "" {
		rq.Query = rq.URL.Query()
	}
	info := rq.Endpoint.Info
	if info.Converts != nil && info.Converts() {
		rq.Ctx = conversion.WithTrace(rq.Ctx, rq.Trace)
	}
	if info.Deprecated != "" && (rt.Subresource != "" || Offers(info.Verbs, rt.Verb)) {
		rq.Warn(info.Deprecated)
		api.Metrics.Deprecated.WithLabelValues(rt.Group, rt.Version, rt.Plural, api.KnownParts(rt).Subresource, "").Set(1)
	}
	if info.JSONOnly {
		if err := rq.checkCustomRoute(); err != nil {
			return err
		}
	}
	if !info.Namespaced && rt.Namespace != "" && !rt.IsNamespace() {
		return response.ErrNotFound
	}
	if info.Namespaced && rt.Namespace == "" {
		if rt.Name != "" {
			return response.ErrNotFound
		}
		if rt.Verb != "list" && rt.Verb != "watch" {
			return response.ErrMethodNotAllowed
		}
	}
	if handle := api.Handlers[HandlerKey{info.GVR.GroupResource(), rt.Subresource}]; handle != nil {
		return handle(rq)
	}
	if rq.Method == http.MethodHead {
		return response.ErrMethodNotAllowed
	}
	if rt.Name != "" {
		if problems := content.IsPathSegmentName(rt.Name); len(problems) > 0 {
			return apierrors.NewBadRequest(fmt.Sprintf("Name parameter invalid: %q: %s", rt.Name, strings.Join(problems, ";")))
		}
	}
	if rt.IsNamespace() {
		rq.Route.Namespace = "" // a namespace is not itself in a namespace
	}
	if rt.Subresource != "" {
		return rq.subresource()
	}
	if !Offers(info.Verbs, rt.Verb) {
		return response.ErrMethodNotAllowed
	}
	switch rt.Verb {
	case "get":
		return rq.get()
	case "list":
		return rq.list()
	case "watch":
		return rq.watch()
	case "create":
		if rt.Name != "" {
			return response.ErrMethodNotAllowed
		}
		return rq.create()
	case "update":
		if rt.Name == "" {
			return response.ErrMethodNotAllowed
		}
		return rq.update()
	case "patch":
		if rt.Name == "" {
			return response.ErrMethodNotAllowed
		}
		return rq.patch()
	case "delete":
		return rq.delete()
	case "deletecollection":
		return rq.deleteCollection()
	}
	return response.ErrMethodNotAllowed
}

// notServed returns the error for a resource that is not served: a Status in built-in groups, text in all others.
func (api *API) notServed(group string) error {
	for gvr, end := range api.Served().Endpoints {
		if gvr.Group == group && !end.Info.JSONOnly {
			return response.ErrNotFound
		}
	}
	return response.ErrNoPage
}

// checkCustomRoute refuses what a custom resource does not have, in upstream's words, which differ from those for built-in resources.
func (rq *Request) checkCustomRoute() error {
	info, rt := rq.Endpoint.Info, rq.Route
	across := rt.Verb == "list" || rt.Verb == "watch"
	if info.Namespaced != (rt.Namespace != "") && !(info.Namespaced && across) {
		return response.ErrNoPage
	}
	verbs := info.Verbs
	switch edit := rq.Endpoint.Edit(rt.Subresource); {
	case rt.Subresource == "":
		if (rt.Verb == "update" || rt.Verb == "patch") && rt.Name == "" {
			return apierrors.NewBadRequest("name must be provided")
		}
	case rt.Subresource == "scale" && info.Stored.Scale != nil && rt.Rest == "":
		verbs = []string{"get", "update", "patch"}
	case edit == nil || rt.Rest != "":
		return apierrors.NewNotFound(info.GVR.GroupResource(), rt.Name)
	default:
		verbs = edit.Verbs
	}
	if rq.Method != http.MethodHead && !Offers(verbs, rt.Verb) {
		return apierrors.NewMethodNotSupported(info.GVR.GroupResource(), rt.Verb)
	}
	return nil
}

// subresource serves scale, status and the other subresources that update a part of the object.
func (rq *Request) subresource() error {
	if rq.Route.Subresource == "scale" && rq.Endpoint.Info.Stored.Scale != nil && rq.Route.Rest == "" {
		return rq.scale()
	}
	edit := rq.Endpoint.Edit(rq.Route.Subresource)
	if edit == nil || rq.Route.Rest != "" {
		return response.ErrNotFound
	}
	if !Offers(edit.Verbs, rq.Route.Verb) {
		return response.ErrMethodNotAllowed
	}
	switch rq.Route.Verb {
	case "get":
		return rq.get()
	case "update":
		return rq.update()
	case "patch":
		return rq.patch()
	}
	return response.ErrMethodNotAllowed
}

// Offers reports whether a verb is one of those that a resource or subresource has.
func Offers(verbs []string, verb string) bool {
	for _, v := range verbs {
		if v == verb {
			return true
		}
	}
	return false
}

// TraceName returns what traces call the resource of a request: "deployments.apps", "pods/binding".
func (api *API) TraceName(rt request.Route) string {
	name := rt.Plural
	if rt.Group != "" { // another server has it
		name += "." + rt.Group
	}
	if end := api.Endpoint(rt.Group, rt.Version, rt.Plural); end != nil {
		if name = end.Traced; end.Subresources[rt.Subresource] {
			return end.tracedParts[rt.Subresource]
		}
	}
	if rt.Subresource != "" {
		name += "/" + rt.Subresource
	}
	return name
}

// KnownParts returns a route without the parts that are not served: clients can invent any number of paths, which must not become labels of metrics.
func (api *API) KnownParts(rt request.Route) request.Route {
	end := api.Endpoint(rt.Group, rt.Version, rt.Plural)
	switch {
	case end == nil:
		rt.Group, rt.Version, rt.Plural, rt.Subresource = "", "", "", ""
	case !end.Subresources[rt.Subresource]:
		rt.Subresource = ""
	}
	return rt
}
