package verbs

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/response"
	"skiff/internal/catalog"
)

// Request is one request for a resource on its way through the server.
type Request struct {
	response.Responder
	API      *API
	Endpoint *Endpoint
	User     *authn.User

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

// Warn adds a Warning header. It must come before the answer.
func (rq *Request) Warn(text string) {
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

// ReadBody reads the request body, up to the limit.
func (rq *Request) ReadBody() ([]byte, error) {
	defer rq.Body.Close()
	if rq.ContentLength > maxBody {
		return nil, tooLarge()
	}
	length := rq.ContentLength
	if length == 0 && rq.Body != http.NoBody { // a request in process that does not say
		length = -1
	}
	b, err := rq.W.ReadBody(rq.Ctx, rq.Body, length, maxBody)
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

// Decode reads a body into an object of the given kind and tells the client of what was ignored.
func (rq *Request) Decode(body []byte, gvk schema.GroupVersionKind, obj runtime.Object, strictness codec.Strictness) error {
	media, err := codec.MediaOf(rq.Header.Get("Content-Type"))
	if err != nil {
		return err
	}
	warnings, err := codec.Decode(body, media, gvk, obj, strictness)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		rq.Warn(w)
	}
	return nil
}

// RegistryWrite returns what the registry needs to know of this request's write.
func (rq *Request) RegistryWrite(dryRun bool, validate func(ctx context.Context, obj, old catalog.Object) error) registry.Write {
	return registry.Write{DryRun: dryRun, Validate: validate, Stage: rq.Trace.Stage, Warn: rq.Warn,
		Request: catalog.Request{User: *rq.User, Now: time.Now()}}
}

// AdmissionAttributes returns the attributes of this request's write.
func (rq *Request) AdmissionAttributes(op admission.Operation, obj, old catalog.Object, dryRun bool) *admission.Attributes {
	return &admission.Attributes{Info: rq.Endpoint.Info, Subresource: rq.Route.Subresource, Operation: op, Namespace: rq.Route.Namespace, Name: rq.Route.Name,
		Object: obj, Old: old, User: rq.User, DryRun: dryRun, Warn: rq.Warn}
}

// FieldManager is who a write's fields are said to belong to.
func (rq *Request) FieldManager(asked string) string {
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
