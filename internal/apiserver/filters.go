package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/uuid"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/metrics"
	"skiff/internal/apiserver/request"
	"skiff/internal/apiserver/response"
	"skiff/internal/journey"
)

// ServeHTTP takes a request through the filters to its handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	rt := request.ParseRoute(r)
	out := &response.Writer{ResponseWriter: w}
	trace := s.startTrace(r, rt)
	defer func() {
		trace.End(out.Code())
		s.metrics.Observe(r, s.served(rt), metrics.Answer{Code: out.Code(), Size: out.Size(), Took: time.Since(began), Waited: out.SeatWait})
	}()
	defer s.recovered(out, r)
	w.Header()["Audit-Id"] = []string{auditID(r)}
	if !s.front.pass(out, r) {
		return
	}
	s.serve(out, r, rt, trace)
}

func (s *Server) serve(w *response.Writer, r *http.Request, rt request.Route, trace *journey.Trace) {
	long := rt.LongRunning()
	ctx := r.Context()
	if !long {
		timeout, err := s.timeout(r)
		if err != nil {
			response.Fail(w, r, err)
			return
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
		w.LimitWaits(ctx)
	}
	trace.Stage(journey.Authentication)
	user, err := s.authenticate(w, r)
	if r.ProtoMajor == 2 && (err != nil || user.Username == authn.Anonymous) {
		w.Header().Set("Connection", "close") // as upstream: a client that nobody knows gets one request for its connection (CVE-2023-44487)
	}
	if err != nil {
		response.Fail(w, r, err)
		return
	}
	r.Header.Del("Authorization")
	trace.By(user.Username)
	if !long {
		if !s.enter(ctx, w, r, &rt, user) {
			response.Fail(w, r, response.TooManyRequests())
			return
		}
		defer w.Seat.Leave()
	}
	trace.Stage(journey.Authorization)
	attributes := &authz.Attributes{User: user, Verb: rt.Verb, Resource: rt.Resource, Group: rt.Group, Version: rt.Version, Plural: rt.Plural,
		Subresource: rt.Subresource, Namespace: rt.Namespace, Name: rt.Name, Path: r.URL.Path}
	if s.opts.Seen != nil {
		s.opts.Seen(r, attributes)
	}
	if err := s.authorize(ctx, r, attributes); err != nil {
		response.Fail(w, r, err)
		return
	}
	if !rt.Resource {
		s.serveOther(w, r.WithContext(ctx), attributes.User)
		return
	}
	if end := s.endpoint(rt.Group, rt.Version, rt.Plural); long && rt.Verb != "watch" && end != nil { // a watch counts once it has begun
		defer s.metrics.Long("CONNECT", s.served(rt))()
	}
	rq := &Request{Responder: response.Responder{Request: r, Ctx: ctx, W: w, Route: rt, Trace: trace, Shared: &s.shared}, server: s, User: attributes.User}
	if err := s.dispatch(rq); err != nil {
		response.Fail(w, r, err)
	}
}

// dispatch finds the endpoint and the verb of a request for a resource.
func (s *Server) dispatch(rq *Request) error {
	if !s.ready.Load() {
		return apierrors.NewServiceUnavailable("the server is starting or stopping")
	}
	rt := rq.Route
	if rq.Endpoint = s.endpoint(rt.Group, rt.Version, rt.Plural); rq.Endpoint == nil {
		return response.ErrNotFound
	}
	rq.Resource = rq.Endpoint.Resource
	if rq.URL.RawQuery != "" {
		rq.Query = rq.URL.Query()
	}
	info := rq.Endpoint.Info
	if info.Deprecated != "" && (rt.Subresource != "" || offers(info.Verbs, rt.Verb)) {
		rq.warn(info.Deprecated)
		s.metrics.Deprecated.WithLabelValues(rt.Group, rt.Version, rt.Plural, s.served(rt).Subresource, "").Set(1)
	}
	if !info.Namespaced && rt.Namespace != "" && !(rt.Plural == "namespaces" && rt.Name == rt.Namespace) {
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
	if handle := s.specials[specialKey{info.GVR.GroupResource(), rt.Subresource}]; handle != nil {
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
	if rt.Plural == "namespaces" {
		rq.Route.Namespace = "" // the object itself is not in one
	}
	if rt.Subresource != "" {
		return rq.subresource()
	}
	if !offers(info.Verbs, rt.Verb) {
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

// subresource handles the parts of an object that every resource may have.
func (rq *Request) subresource() error {
	if rq.Route.Subresource == "scale" && rq.Endpoint.Info.Stored.Scale != nil && rq.Route.Rest == "" {
		return rq.scale()
	}
	edit := rq.Endpoint.edit(rq.Route.Subresource)
	if edit == nil || rq.Route.Rest != "" {
		return response.ErrNotFound
	}
	if !offers(edit.Verbs, rq.Route.Verb) {
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

func offers(verbs []string, verb string) bool {
	for _, v := range verbs {
		if v == verb {
			return true
		}
	}
	return false
}

func (s *Server) startTrace(r *http.Request, rt request.Route) *journey.Trace {
	if s.opts.Journey == nil || !rt.Resource {
		return nil
	}
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return nil // other methods write nothing, and their names would fill the recorder's table
	}
	return s.opts.Journey.Begin(r.Header, rt.Verb, s.traced(rt), rt.Namespace, rt.Name)
}

// traced is what the resource of a request is called in traces: "deployments.apps", "pods/binding".
func (s *Server) traced(rt request.Route) string {
	name := rt.Plural
	if end := s.endpoint(rt.Group, rt.Version, rt.Plural); end != nil {
		if name = end.traced; end.subresources[rt.Subresource] {
			return end.tracedParts[rt.Subresource]
		}
	}
	if rt.Subresource != "" {
		name += "/" + rt.Subresource
	}
	return name
}

// timeout is how long a request may take: what the client asks, within what the server allows.
func (s *Server) timeout(r *http.Request) (time.Duration, error) {
	if !strings.Contains(r.URL.RawQuery, "timeout=") {
		return s.opts.RequestTimeout, nil
	}
	asked := r.URL.Query().Get("timeout")
	if asked == "" {
		return s.opts.RequestTimeout, nil
	}
	d, err := time.ParseDuration(asked)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid timeout specified in the request URL - %v", err))
	}
	if d <= 0 || d > s.opts.RequestTimeout {
		return s.opts.RequestTimeout, nil
	}
	return d, nil
}

func mutating(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

func auditID(r *http.Request) string {
	const longest = 64
	if id := r.Header.Get("Audit-Id"); id != "" && len(id) <= longest {
		return id
	}
	return string(uuid.NewUUID())
}

// forbidden is the answer if an authorizer did not allow something.
func forbidden(a *authz.Attributes, reason string, err error) error {
	if err != nil && reason == "" {
		reason = err.Error()
	}
	return authz.Forbidden(a, reason)
}

// recovered answers 500 for a handler that panicked, and leaves the server running.
func (s *Server) recovered(w *response.Writer, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	s.opts.Log.Error("a request handler panicked", "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
	if w.Begun() {
		panic(http.ErrAbortHandler) // the client must not take what it got for the whole
	}
	response.Fail(w, r, apierrors.NewInternalError(fmt.Errorf("This request caused apiserver to panic. Look in the logs for details.")))
}
