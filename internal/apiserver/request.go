package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/request"
	"skiff/internal/catalog"
	"skiff/internal/journey"
)

// request is one request for a resource on its way through the server.
type Request struct {
	*http.Request
	Ctx      context.Context
	W        *responseWriter
	server   *Server
	Route    request.Route
	Endpoint *endpoint
	User     *authn.User
	Query    url.Values
	Accept   codec.Accepted
	Trace    *journey.Trace

	warnings sync.Mutex // a collection is deleted by several goroutines
	warned   int        // bytes of warnings sent
	seen     map[string]bool
}

const (
	// maxBody is the largest request body accepted, as upstream.
	maxBody = 3 << 20
	// maxWarnings bounds the bytes of warnings in one answer's headers.
	maxWarnings = 4096
)

// warn adds a Warning header. It must come before the answer.
func (rq *Request) warn(text string) {
	rq.warnings.Lock()
	defer rq.warnings.Unlock()
	if rq.seen[text] || rq.warned+len(text) > maxWarnings {
		return
	}
	header, err := utilnet.NewWarningHeader(299, "-", text)
	if err != nil {
		return
	}
	if rq.seen == nil {
		rq.seen = map[string]bool{}
	}
	rq.seen[text] = true
	rq.warned += len(text)
	rq.W.Header().Add("Warning", header)
}

// negotiate finds out in which form the client wants the answer.
func (rq *Request) negotiate() (err error) {
	rq.Accept, err = codec.Negotiate(rq.Header.Get("Accept"), codec.AsTable, codec.AsPartial, codec.AsPartialList)
	return err
}

// body reads the request body, up to the limit.
func (rq *Request) body() ([]byte, error) {
	defer rq.Body.Close()
	if rq.ContentLength > maxBody {
		return nil, tooLarge()
	}
	length := rq.ContentLength
	if length == 0 && rq.Body != http.NoBody { // a request in process that does not say
		length = -1
	}
	b, err := rq.W.readBody(rq.Ctx, rq.Body, length, maxBody)
	if err != nil {
		return nil, err
	}
	if len(b) > maxBody {
		return nil, tooLarge()
	}
	return b, nil
}

func tooLarge() error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
}

// decode reads a body into an object of the given kind and tells the client of what was ignored.
func (rq *Request) decode(body []byte, gvk schema.GroupVersionKind, obj runtime.Object, strictness codec.Strictness) error {
	media, err := codec.MediaOf(rq.Header.Get("Content-Type"))
	if err != nil {
		return err
	}
	warnings, err := codec.Decode(body, media, gvk, obj, strictness)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		rq.warn(w)
	}
	return nil
}

// write returns what the registry needs to know of this request's write.
func (rq *Request) write(dryRun bool, validate func(ctx context.Context, obj, old catalog.Object) error) registry.Write {
	return registry.Write{DryRun: dryRun, Validate: validate, Stage: rq.Trace.Stage, Warn: rq.warn,
		Request: catalog.Request{User: *rq.User, Now: time.Now()}}
}

// admission returns the attributes of this request's write.
func (rq *Request) admission(op admission.Operation, obj, old catalog.Object, dryRun bool) *admission.Attributes {
	return &admission.Attributes{Info: rq.Endpoint.Info, Subresource: rq.Route.Subresource, Operation: op, Namespace: rq.Route.Namespace, Name: rq.Route.Name,
		Object: obj, Old: old, User: rq.User, DryRun: dryRun, Warn: rq.warn}
}

// manager is who a write's fields are said to belong to.
func (rq *Request) manager(asked string) string {
	if asked != "" {
		return asked
	}
	agent, _, _ := strings.Cut(rq.UserAgent(), "/")
	printable := strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return -1
		}
		return c
	}, agent)
	const longest = 128
	if len(printable) > longest {
		printable = printable[:longest]
	}
	return printable
}

// fail answers with an error, as a Status.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) int {
	status := statusOf(err)
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(status.Details.RetryAfterSeconds))
	}
	accept, negotiated := codec.Negotiate(r.Header.Get("Accept"))
	if negotiated != nil {
		accept = codec.Accepted{}
	}
	accept.Shape = codec.AsObject
	accept.Pretty = accept.Pretty || prettyAgent(r)
	body := codec.Status(&status, accept)
	if out, ok := w.(*responseWriter); ok {
		out.limitRefusal()
	}
	w.Header().Set("Content-Type", accept.Media.String())
	w.WriteHeader(int(status.Code))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
	return int(status.Code)
}

// statusOf makes a Status of any error.
func statusOf(err error) metav1.Status {
	var api apierrors.APIStatus
	if errors.As(err, &api) {
		status := api.Status()
		if status.Status == "" {
			status.Status = metav1.StatusFailure
		}
		if status.Code == 0 {
			status.Code = http.StatusInternalServerError
		}
		return status
	}
	return metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error(), Reason: metav1.StatusReasonUnknown}
}

func prettyAgent(r *http.Request) bool {
	if strings.Contains(r.URL.RawQuery, "pretty=") {
		p := r.URL.Query().Get("pretty")
		return p == "1" || p == "true"
	}
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}
