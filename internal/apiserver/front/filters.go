package front

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/uuid"

	"skiff/internal/apiserver/aggregation"
	"skiff/internal/apiserver/authn"
	authnconfig "skiff/internal/apiserver/authn/config"
	"skiff/internal/apiserver/authn/impersonation"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/flowcontrol"
	"skiff/internal/apiserver/metrics"
	"skiff/internal/apiserver/nonresource"
	"skiff/internal/apiserver/request"
	"skiff/internal/apiserver/response"
	"skiff/internal/apiserver/verbs"
	"skiff/internal/journey"
)

// Options are what the front works with. All are required unless noted.
type Options struct {
	Headers        HeaderOptions
	API            *verbs.API               // serves the paths of resources
	NonResource    *nonresource.Handler     // serves all other paths
	Aggregation    *aggregation.Aggregation // has group versions served by other servers
	Authentication *authnconfig.Authentication
	Flow           *flowcontrol.Controller
	Fair           bool              // flow control has priority levels: watches take a seat until they have begun
	RequestTimeout time.Duration     // of requests that are not long-running and do not ask for less
	Journey        *journey.Recorder // nil if no journeys are recorded
	// Seen is called for every request, with what is asked for and by whom; for tests. It may be nil.
	Seen func(*http.Request, *authz.Attributes)
	Log  *slog.Logger
}

// Front takes requests through the filters. It is an http.Handler.
type Front struct {
	Options
	headers      *headers
	impersonator *impersonation.Impersonator
	refusals     *refusals
}

// New returns the front of a server. It fails if o.Headers is invalid: see HeaderOptions.Check.
func New(o Options) (*Front, error) {
	headers, err := newHeaders(o.Headers)
	if err != nil {
		return nil, err
	}
	return &Front{Options: o, headers: headers, impersonator: impersonation.New(o.API.Authorizer), refusals: newRefusals(o.Log, refusalsEvery)}, nil
}

// Run logs the requests that fail authentication, until ctx ends.
func (f *Front) Run(ctx context.Context) { f.refusals.run(ctx) }

// ServeHTTP takes a request through the filters, and counts and traces what comes of it.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	rt := request.ParseRoute(r)
	out := &response.Writer{ResponseWriter: w, Began: began}
	trace := f.startTrace(r, rt)
	defer func() {
		trace.End(out.Code())
		took := time.Since(began)
		if !rt.LongRunning() {
			out.Seat.Executed(took-out.SeatWait, false)
		}
		f.API.Metrics.Observe(r, f.API.KnownParts(rt), metrics.Answer{Code: out.Code(), Size: out.Size(), Took: took, Waited: out.SeatWait})
	}()
	defer f.recovered(out, r)
	w.Header()["Audit-Id"] = []string{auditID(r)}
	if !f.headers.set(out, r) {
		return
	}
	f.serve(out, r, rt, trace)
}

// serve takes a request through authentication, flow control and authorization to the API.
func (f *Front) serve(w *response.Writer, r *http.Request, rt request.Route, trace *journey.Trace) {
	long := rt.LongRunning()
	ctx, timeout := r.Context(), f.RequestTimeout
	if !long {
		var err error
		timeout, err = f.timeout(r)
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
	user, err := f.authenticate(w, r)
	if r.ProtoMajor == 2 && (err != nil || user.Username == authn.Anonymous) {
		w.Header().Set("Connection", "close") // as upstream: an unauthenticated client gets one request for each connection (CVE-2023-44487)
	}
	if err != nil {
		response.Fail(w, r, err)
		return
	}
	r.Header.Del("Authorization")
	trace.By(user.Username)
	attributes := &authz.Attributes{User: user, Verb: rt.Verb, Resource: rt.Resource, Group: rt.Group, Version: rt.Version, Plural: rt.Plural,
		Subresource: rt.Subresource, Namespace: rt.Namespace, Name: rt.Name, Path: r.URL.Path}
	if f.Seen != nil {
		f.Seen(r, attributes)
	}
	addSelectors(attributes, r, &rt)
	if err := f.impersonate(ctx, r, attributes); err != nil {
		response.Fail(w, r, err)
		return
	}
	if watching := rt.Resource && rt.Verb == "watch"; !long || watching && f.Fair {
		if watching {
			w.LeaveWhenWaiting()
		}
		if !f.takeSeat(ctx, w, r, &rt, attributes.User, timeout) {
			w.Seat.Stall(ctx)
			response.Fail(w, r, w.TooManyRequests())
			return
		}
		defer w.Seat.Leave()
	}
	trace.Stage(journey.Authorization)
	if err := f.authorize(ctx, r, attributes); err != nil {
		response.Fail(w, r, err)
		return
	}
	if other := f.Aggregation.Backend(rt.Group, rt.Version, r.URL.Path); other != nil {
		f.forward(ctx, w, r, other, attributes.User, long, trace)
		return
	}
	if !rt.Resource {
		f.NonResource.Serve(w, r.WithContext(ctx), attributes.User)
		return
	}
	if end := f.API.Endpoint(rt.Group, rt.Version, rt.Plural); long && rt.Verb != "watch" && end != nil { // a watch is counted once it has started
		defer f.API.Metrics.Long("CONNECT", f.API.KnownParts(rt))()
	}
	rq := &verbs.Request{Responder: response.Responder{Request: r, Ctx: ctx, W: w, Route: rt, Trace: trace, Shared: &f.API.Shared}, API: f.API, User: attributes.User}
	if err := f.API.Serve(rq); err != nil {
		response.Fail(w, r, err)
	}
}

// forward has another server answer a request.
func (f *Front) forward(ctx context.Context, w *response.Writer, r *http.Request, to *aggregation.Backend, user *authn.User, long bool, trace *journey.Trace) {
	trace.Stage(journey.AggregatedAPI)
	began := time.Now()
	to.Serve(w, r.WithContext(ctx), user, long)
	if trace == nil {
		return
	}
	span := journey.Span{Component: "kube-apiserver", Stage: journey.AggregatedAPI, Start: began, Duration: time.Since(began), Attributes: []journey.Attribute{
		{Key: journey.AttributeAPIService, Value: to.Name()}, {Key: journey.AttributeCode, Value: strconv.Itoa(w.Code())}}}
	if w.Code() >= http.StatusInternalServerError {
		span.Error = http.StatusText(w.Code())
	}
	trace.Span(span)
}

// startTrace begins the trace of a request that may write; nil for others, and if no journeys are recorded.
func (f *Front) startTrace(r *http.Request, rt request.Route) *journey.Trace {
	if f.Journey == nil || !rt.Resource {
		return nil
	}
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return nil // other methods write nothing, and clients could fill the recorder's table with invented ones
	}
	return f.Journey.Begin(r.Header, rt.Verb, f.API.TraceName(rt), rt.Namespace, rt.Name)
}

// timeout returns how long a request may take: what the client asks for, up to RequestTimeout.
func (f *Front) timeout(r *http.Request) (time.Duration, error) {
	if !strings.Contains(r.URL.RawQuery, "timeout=") {
		return f.RequestTimeout, nil
	}
	asked := r.URL.Query().Get("timeout")
	if asked == "" {
		return f.RequestTimeout, nil
	}
	d, err := time.ParseDuration(asked)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid timeout specified in the request URL - %v", err))
	}
	if d <= 0 || d > f.RequestTimeout {
		return f.RequestTimeout, nil
	}
	return d, nil
}

func mutating(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

// auditID returns the Audit-Id that a client has sent, or a new one.
func auditID(r *http.Request) string {
	const longest = 64
	if id := r.Header.Get("Audit-Id"); id != "" && len(id) <= longest {
		return id
	}
	return string(uuid.NewUUID())
}

// recovered answers 500 if a handler panicked, and keeps the server running. It must be deferred.
func (f *Front) recovered(w *response.Writer, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	f.Log.Error("a request handler panicked", "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
	if w.Started() {
		panic(http.ErrAbortHandler) // the client must not take what it has got for the whole response
	}
	response.Fail(w, r, apierrors.NewInternalError(fmt.Errorf("This request caused apiserver to panic. Look in the logs for details.")))
}
