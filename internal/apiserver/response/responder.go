package response

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/request"
	"skiff/internal/cache"
	"skiff/internal/journey"
)

// Responder answers one request for a resource, in the form that its client accepts.
type Responder struct {
	*http.Request
	Ctx      context.Context // of the request, with the deadline of the response
	W        *Writer
	Route    request.Route
	Query    url.Values // of the request's URL; nil if it has none
	Resource *Resource  // which the request is for
	Accept   codec.Accepted
	Trace    *journey.Trace
	Shared   *Shared
}

// Shared is what the responders of one server share.
type Shared struct {
	Lists    CompressedLists
	Stopping context.Context // ends when the server stops
}

// Negotiate sets Accept to the form in which the client wants the response.
func (rs *Responder) Negotiate() error {
	return rs.NegotiateAs(codec.AsTable, codec.AsPartial, codec.AsPartialList)
}

// NegotiateAs is Negotiate for a response that is offered in the given shapes, besides AsObject.
func (rs *Responder) NegotiateAs(shapes ...codec.Shape) (err error) {
	negotiate := codec.Negotiate
	if rs.Resource.Info.JSONOnly {
		negotiate = codec.NegotiateJSON
	}
	rs.Accept, err = negotiate(rs.Header.Get("Accept"), shapes...)
	return err
}

// SendItem answers with one stored object, in the form the client asked for.
func (rs *Responder) SendItem(code int, it *cache.Item) error {
	rs.Trace.Stage("response")
	it, err := rs.current(it)
	if err != nil {
		return err
	}
	switch rs.Accept.Shape {
	case codec.AsTable:
		return rs.table(code, registry.Page{Items: []*cache.Item{it}, Revision: it.Revision}, true)
	case codec.AsPartial:
		return rs.partial(code, it)
	case codec.AsPartialList:
		return codec.NotAcceptable(fmt.Sprintf("you requested PartialObjectMetadataList, but the requested object is not a list (*%s)", rs.Resource.internalName()))
	}
	if rs.Accept.Media == codec.Protobuf && rs.Resource.Plain() {
		head := rs.Resource.envelope
		raw := it.Raw()
		b := make([]byte, 0, codec.EnvelopeSize(head, len(raw)))
		rs.send(code, codec.AppendEnvelope(b, head, raw))
		return nil
	}
	body, err := rs.Resource.json(it)
	if err != nil {
		return err
	}
	if rs.Accept.Media == codec.Protobuf {
		message, err := rs.Resource.message(it)
		if err != nil {
			return err
		}
		rs.send(code, codec.AppendEnvelope(nil, rs.Resource.envelope, message))
		return nil
	}
	return rs.sendJSON(code, codec.AppendKind(make([]byte, 0, len(body)+len(rs.Resource.jsonHead)+1), rs.Resource.jsonHead, body))
}

// Reading returns what the client wants of objects that a webhook converts.
func (rs *Responder) Reading() registry.Reading {
	if rs.Accept.Shape == codec.AsPartial || rs.Accept.Shape == codec.AsPartialList {
		return registry.ConvertedMetadata
	}
	return registry.Converted
}

// current returns an item in the version that is served.
func (rs *Responder) current(it *cache.Item) (*cache.Item, error) {
	items, err := rs.Resource.Registry.CurrentAll(rs.Ctx, []*cache.Item{it}, rs.Reading())
	if err != nil {
		return nil, err
	}
	return items[0], nil
}

// SendObject answers with an object that is not in the store.
func (rs *Responder) SendObject(code int, obj runtime.Object, gvk schema.GroupVersionKind) error {
	accept := rs.Accept
	accept.Pretty = accept.Pretty || Pretty(rs.Request)
	b, err := codec.Single(obj, gvk, accept)
	if err != nil {
		return err
	}
	rs.send(code, b)
	return nil
}

// SendStatus answers with a Status and its code; 200 if it has none.
func (rs *Responder) SendStatus(s *metav1.Status) error {
	code := http.StatusOK
	if s.Code != 0 {
		code = int(s.Code)
	}
	return rs.SendObject(code, s.DeepCopy(), codec.StatusKind)
}

// PartialKind returns a kind of the group meta.k8s.io, such as Table, in the version the client asked for.
func (rs *Responder) PartialKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: metav1.GroupName, Version: rs.Accept.Version, Kind: kind}
}

// reformatted reports whether JSON is to be indented or sent as YAML.
func (rs *Responder) reformatted() bool {
	return rs.Accept.Media == codec.YAML || rs.Accept.Pretty || Pretty(rs.Request)
}

// sendJSON sends JSON, indented or as YAML if the client wants that.
func (rs *Responder) sendJSON(code int, b []byte) error {
	accept := rs.Accept
	accept.Pretty = accept.Pretty || Pretty(rs.Request)
	b, err := codec.Finish(b, accept)
	if err != nil {
		return err
	}
	rs.send(code, b)
	return nil
}

func (rs *Responder) header(code int) {
	h := rs.W.Header()
	h["Content-Type"] = contentTypes[rs.Accept.Media]
	rs.W.WriteHeader(code)
}

var contentTypes = [][]string{codec.JSON: {codec.JSONType}, codec.YAML: {codec.YAMLType}, codec.Protobuf: {codec.ProtobufType}}

// send sends a response of one piece, compressed if that pays.
func (rs *Responder) send(code int, b []byte) {
	out, done := rs.compressed(len(b))
	defer done()
	if out == io.Writer(rs.W) {
		rs.W.Header()["Content-Length"] = []string{strconv.Itoa(len(b))}
	}
	rs.header(code)
	rs.W.keepsSeat = rs.W.keepsSeat || len(b) > largeBody
	if rs.Method != http.MethodHead {
		_, _ = out.Write(b)
	}
}

// abort ends the writing of a response that the client does not read. It has no effect in process.
func (rs *Responder) abort() { _ = http.NewResponseController(rs.W).SetWriteDeadline(time.Now()) }
