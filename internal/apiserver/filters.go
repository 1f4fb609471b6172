package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/uuid"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/metrics"
	"skiff/internal/apiserver/request"
	"skiff/internal/apiserver/response"
	"skiff/internal/apiserver/verbs"
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
		s.api.Metrics.Observe(r, s.api.Served(rt), metrics.Answer{Code: out.Code(), Size: out.Size(), Took: time.Since(began), Waited: out.SeatWait})
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
	if end := s.api.Endpoint(rt.Group, rt.Version, rt.Plural); long && rt.Verb != "watch" && end != nil { // a watch counts once it has begun
		defer s.api.Metrics.Long("CONNECT", s.api.Served(rt))()
	}
	rq := &verbs.Request{Responder: response.Responder{Request: r, Ctx: ctx, W: w, Route: rt, Trace: trace, Shared: &s.api.Shared}, API: s.api, User: attributes.User}
	if err := s.api.Serve(rq); err != nil {
		response.Fail(w, r, err)
	}
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
	return s.opts.Journey.Begin(r.Header, rt.Verb, s.api.TraceName(rt), rt.Namespace, rt.Name)
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
