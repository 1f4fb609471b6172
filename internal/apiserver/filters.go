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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/flowcontrol"
	"skiff/internal/apiserver/metrics"
	"skiff/internal/apiserver/request"
	"skiff/internal/journey"
)

// ServeHTTP takes a request through the filters to its handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	rt := request.ParseRoute(r)
	out := &responseWriter{ResponseWriter: w}
	trace := s.startTrace(r, rt)
	defer func() {
		trace.End(out.code())
		s.metrics.Observe(r, s.served(rt), metrics.Answer{Code: out.code(), Size: out.size, Took: time.Since(began), Waited: out.waited})
	}()
	defer s.recovered(out, r)
	w.Header()["Audit-Id"] = []string{auditID(r)}
	if !s.front.pass(out, r) {
		return
	}
	s.serve(out, r, rt, trace)
}

func (s *Server) serve(w *responseWriter, r *http.Request, rt request.Route, trace *journey.Trace) {
	long := rt.LongRunning()
	ctx := r.Context()
	if !long {
		timeout, err := s.timeout(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
		w.limitWaits(ctx)
	}
	trace.Stage(journey.Authentication)
	user, err := s.authenticate(w, r)
	if r.ProtoMajor == 2 && (err != nil || user.Username == authn.Anonymous) {
		w.Header().Set("Connection", "close") // as upstream: a client that nobody knows gets one request for its connection (CVE-2023-44487)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	r.Header.Del("Authorization")
	trace.By(user.Username)
	if !long {
		if !s.enter(ctx, w, r, &rt, user) {
			s.fail(w, r, tooMany())
			return
		}
		defer w.seat.Leave()
	}
	trace.Stage(journey.Authorization)
	attributes := &authz.Attributes{User: user, Verb: rt.Verb, Resource: rt.Resource, Group: rt.Group, Version: rt.Version, Plural: rt.Plural,
		Subresource: rt.Subresource, Namespace: rt.Namespace, Name: rt.Name, Path: r.URL.Path}
	if s.opts.Seen != nil {
		s.opts.Seen(r, attributes)
	}
	if err := s.authorize(ctx, r, attributes); err != nil {
		s.fail(w, r, err)
		return
	}
	if !rt.Resource {
		s.serveOther(w, r.WithContext(ctx), attributes.User)
		return
	}
	if end := s.endpoint(rt.Group, rt.Version, rt.Plural); long && rt.Verb != "watch" && end != nil { // a watch counts once it has begun
		defer s.metrics.Long("CONNECT", s.served(rt))()
	}
	rq := &Request{Request: r, Ctx: ctx, W: w, server: s, Route: rt, User: attributes.User, Trace: trace}
	if err := s.dispatch(rq); err != nil {
		s.fail(w, r, err)
	}
}

// dispatch finds the endpoint and the verb of a request for a resource.
func (s *Server) dispatch(rq *Request) error {
	if !s.ready.Load() {
		return apierrors.NewServiceUnavailable("the server is starting or stopping")
	}
	rt := rq.Route
	if rq.Endpoint = s.endpoint(rt.Group, rt.Version, rt.Plural); rq.Endpoint == nil {
		return errNoRoute
	}
	if rq.URL.RawQuery != "" {
		rq.Query = rq.URL.Query()
	}
	info := rq.Endpoint.Info
	if info.Deprecated != "" && (rt.Subresource != "" || offers(info.Verbs, rt.Verb)) {
		rq.warn(info.Deprecated)
		s.metrics.Deprecated.WithLabelValues(rt.Group, rt.Version, rt.Plural, s.served(rt).Subresource, "").Set(1)
	}
	if !info.Namespaced && rt.Namespace != "" && !(rt.Plural == "namespaces" && rt.Name == rt.Namespace) {
		return errNoRoute
	}
	if info.Namespaced && rt.Namespace == "" {
		if rt.Name != "" {
			return errNoRoute
		}
		if rt.Verb != "list" && rt.Verb != "watch" {
			return errMethod
		}
	}
	if handle := s.specials[specialKey{info.GVR.GroupResource(), rt.Subresource}]; handle != nil {
		return handle(rq)
	}
	if rq.Method == http.MethodHead {
		return errMethod
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
		return errMethod
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
			return errMethod
		}
		return rq.create()
	case "update":
		if rt.Name == "" {
			return errMethod
		}
		return rq.update()
	case "patch":
		if rt.Name == "" {
			return errMethod
		}
		return rq.patch()
	case "delete":
		return rq.delete()
	case "deletecollection":
		return rq.deleteCollection()
	}
	return errMethod
}

// subresource handles the parts of an object that every resource may have.
func (rq *Request) subresource() error {
	if rq.Route.Subresource == "scale" && rq.Endpoint.Info.Stored.Scale != nil && rq.Route.Rest == "" {
		return rq.scale()
	}
	edit := rq.Endpoint.edit(rq.Route.Subresource)
	if edit == nil || rq.Route.Rest != "" {
		return errNoRoute
	}
	if !offers(edit.Verbs, rq.Route.Verb) {
		return errMethod
	}
	switch rq.Route.Verb {
	case "get":
		return rq.get()
	case "update":
		return rq.update()
	case "patch":
		return rq.patch()
	}
	return errMethod
}

func offers(verbs []string, verb string) bool {
	for _, v := range verbs {
		if v == verb {
			return true
		}
	}
	return false
}

var errNoRoute = &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
	Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{}}}

var errMethod = &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed,
	Message: "the server does not allow this method on the requested resource", Details: &metav1.StatusDetails{}}}

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

func tooMany() error {
	err := apierrors.NewTooManyRequests("Too many requests, please try again later.", 1)
	return err
}

// forbidden is the answer if an authorizer did not allow something.
func forbidden(a *authz.Attributes, reason string, err error) error {
	if err != nil && reason == "" {
		reason = err.Error()
	}
	return authz.Forbidden(a, reason)
}

// recovered answers 500 for a handler that panicked, and leaves the server running.
func (s *Server) recovered(w *responseWriter, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	s.opts.Log.Error("a request handler panicked", "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
	if w.status != 0 {
		panic(http.ErrAbortHandler) // the client must not take what it got for the whole
	}
	s.fail(w, r, apierrors.NewInternalError(fmt.Errorf("This request caused apiserver to panic. Look in the logs for details.")))
}

// responseWriter remembers what was answered.
type responseWriter struct {
	http.ResponseWriter
	status int
	size   int64
	waited time.Duration // for a seat

	seat     flowcontrol.Seat
	heavy    bool          // it keeps its seat while it waits for its client
	conn     connDeadlines // of a request over HTTP/1.1 that is not long-running
	deadline time.Time     // of such a request
}

func (w *responseWriter) WriteHeader(code int) {
	if w.status == 0 {
		w.status = code
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *responseWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	write := w.ResponseWriter.Write
	if w.conn != nil && len(b) > smallWrite {
		write = w.writeSlowly
	}
	n, err := write(b)
	w.size += int64(n)
	return n, err
}

// WriteAll writes what is in several places as if it were in one.
func (w *responseWriter) WriteAll(all [][]byte) error {
	if to, ok := w.ResponseWriter.(interface{ WriteAll([][]byte) error }); ok {
		if w.status == 0 {
			w.status = http.StatusOK
		}
		for _, b := range all {
			w.size += int64(len(b))
		}
		return to.WriteAll(all)
	}
	return writePieces(w, func(l *listWriter) {
		for _, b := range all {
			l.buf = append(l.buf, b...)
			l.flushIfFull()
		}
	})
}

// Flush sends what has been written.
func (w *responseWriter) Flush() {
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap is for http.ResponseController.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *responseWriter) code() int {
	if w.status == 0 {
		return http.StatusOK
	}
	return w.status
}
