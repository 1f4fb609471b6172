package verbs

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

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

// Request is one request for a resource.
type Request struct {
	response.Responder
	API      *API
	Endpoint *Endpoint
	User     *authn.User

	warningMu     sync.Mutex // guards the fields below: several goroutines delete a collection
	warnings      []string   // in the order in which they came
	warningLength int        // total characters of the warnings in headers
	cutWarnings   bool       // whether warnings are cut to maxCutWarning

	initialization   registry.Initialization // of the object that the request writes
	sentInitializers sentInitializers

	annotations annotations
	calls       atomic.Int32 // of webhooks and policies
}

const (
	// maxBody is the largest request body accepted, as upstream.
	maxBody = 3 << 20
	// maxWarnings bounds the total length of the warnings in the headers of a response, and maxCutWarning that of each of them when they are longer.
	maxWarnings, maxCutWarning = 4096, 256
)

// Warn adds a Warning header, once for each text. It must be called before the response is sent. When the warnings of a request become longer than
// maxWarnings in all, each of them is cut to maxCutWarning characters, and those that then do not fit are left out.
func (rq *Request) Warn(text string) {
	rq.warningMu.Lock()
	defer rq.warningMu.Unlock()
	if text == "" || slices.Contains(rq.warnings, text) || rq.cutWarnings && rq.warningLength >= maxWarnings {
		return
	}
	rq.warnings = append(rq.warnings, text)
	if !rq.cutWarnings && rq.warningLength+utf8.RuneCountInString(text) > maxWarnings {
		rq.cutWarnings, rq.warningLength = true, 0
		rq.W.Header().Del("Warning")
		for _, known := range rq.warnings {
			rq.addWarning(known)
		}
		return
	}
	rq.addWarning(text)
}

// addWarning adds the header of a warning.
func (rq *Request) addWarning(text string) {
	length := utf8.RuneCountInString(text)
	if rq.cutWarnings && length > maxCutWarning {
		text, length = string([]rune(text)[:maxCutWarning]), maxCutWarning
	}
	header, err := utilnet.NewWarningHeader(299, "-", text)
	if err != nil {
		return
	}
	rq.warningLength += length
	rq.W.Header().Add("Warning", header)
}

// ReadBody returns the body of the request; it fails if that is larger than maxBody.
func (rq *Request) ReadBody() ([]byte, error) {
	defer rq.Body.Close()
	if rq.ContentLength > maxBody {
		return nil, tooLarge()
	}
	length := rq.ContentLength
	if length == 0 && rq.Body != http.NoBody { // an in-process request without a Content-Length
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

// Decode decodes a body into an object of the given kind, and warns the client of fields that were ignored.
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

// RegistryWrite returns what the registry needs to know about a write of this request.
func (rq *Request) RegistryWrite(dryRun bool, validate func(ctx context.Context, obj, old catalog.Object) error) registry.Write {
	return registry.Write{DryRun: dryRun, Validate: validate, Stage: rq.Trace.Stage, RulesRun: rq.rulesRun, Warn: rq.Warn,
		Request: catalog.Request{User: *rq.User, Now: time.Now()}, Initialization: &rq.initialization}
}

// AdmissionAttributes returns what admission plugins need to know about a write of this request.
func (rq *Request) AdmissionAttributes(op admission.Operation, obj, old catalog.Object, dryRun bool) *admission.Attributes {
	return &admission.Attributes{Info: rq.Endpoint.Info, Subresource: rq.Route.Subresource, Operation: op, Namespace: rq.Route.Namespace, Name: rq.Route.Name,
		Object: obj, Old: old, User: rq.User, DryRun: dryRun, Warn: rq.Warn, Related: rq.Endpoint.Related, Origin: rq,
		Initializers: rq.initialization.New, OldInitializers: rq.initialization.Old, SentInitializers: rq.sentInitializers.sent}
}

// FieldManager returns the manager of the fields that a write sets: the one asked for, or else the start of the User-Agent.
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
