package response

import (
	"encoding/binary"
	"encoding/json"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/codec"
	"skiff/internal/cache"
	"skiff/internal/catalog"
)

// framer encodes watch events in one format.
type framer interface {
	contentType() string
	// event encodes a change. shared says that every watcher of this format gets the same bytes: they are kept with the change, and nobody may change
	// them.
	event(c *cache.Change, kind cache.ChangeType, it *cache.Item, shared bool) ([]byte, error)
	object(kind string, obj catalog.Object) ([]byte, error)
	failure(status metav1.Status) []byte
}

// frames returns the framer for the format that the client accepts.
func (rs *Responder) frames() (framer, error) {
	switch {
	case rs.Accept.Media == codec.YAML: // which has no streaming format
		return nil, codec.NotAcceptable("only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch")
	case rs.Accept.Shape == codec.AsTable:
		include, err := rs.IncludeObject()
		return &tableFrames{jsonFrames: jsonFrames{rs.Resource}, version: rs.Accept.Version, include: include, first: true}, err
	case rs.Accept.Shape == codec.AsPartial:
		return partialFrames{jsonFrames{rs.Resource}, rs.Accept.Version, rs.Accept.Media == codec.Protobuf}, nil
	case rs.Accept.Media == codec.Protobuf:
		return protobufFrames{rs.Resource}, nil
	default:
		return jsonFrames{rs.Resource}, nil
	}
}

type jsonFrames struct{ end *Resource }

func (jsonFrames) contentType() string { return codec.JSONType }

func (f jsonFrames) event(c *cache.Change, kind cache.ChangeType, it *cache.Item, shared bool) ([]byte, error) {
	var failure error
	encode := func(*cache.Change) []byte {
		body, err := f.end.json(it)
		if err != nil {
			failure = err
			return nil
		}
		frame := make([]byte, 0, len(body)+len(f.end.jsonHead)+32)
		frame = appendType(frame, string(kind))
		frame = codec.AppendKind(frame, f.end.jsonHead, body)
		return append(frame, "}\n"...)
	}
	if shared && f.end.sharesFrames() {
		return c.Frame(cache.FrameJSON, encode), failure
	}
	return encode(c), failure
}

func (f jsonFrames) object(kind string, obj catalog.Object) ([]byte, error) {
	body, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	return append(codec.AppendKind(appendType(nil, kind), f.end.jsonHead, body), "}\n"...), nil
}

// appendType appends the JSON of an event up to its object.
func appendType(b []byte, kind string) []byte {
	return append(append(append(b, `{"type":"`...), kind...), `","object":`...)
}

func (jsonFrames) failure(status metav1.Status) []byte {
	body := codec.Status(&status, codec.Accepted{})
	return append(append(appendType(nil, "ERROR"), body[:len(body)-1]...), "}\n"...)
}

type protobufFrames struct{ end *Resource }

func (protobufFrames) contentType() string { return codec.ProtobufType + ";stream=watch" }

func (f protobufFrames) event(c *cache.Change, kind cache.ChangeType, it *cache.Item, shared bool) ([]byte, error) {
	var failure error
	encode := func(*cache.Change) []byte {
		message, err := f.end.message(it)
		if err != nil {
			failure = err
			return nil
		}
		return protobufEvent(string(kind), f.end.envelope, message)
	}
	if shared && f.end.sharesFrames() {
		return c.Frame(cache.FrameProtobuf, encode), failure
	}
	return encode(c), failure
}

func (f protobufFrames) object(kind string, obj catalog.Object) ([]byte, error) {
	message, err := obj.Marshal()
	if err != nil {
		return nil, err
	}
	return protobufEvent(kind, f.end.envelope, message), nil
}

func (protobufFrames) failure(status metav1.Status) []byte {
	message, err := status.Marshal()
	if err != nil {
		return nil
	}
	return protobufEvent("ERROR", codec.EnvelopeHead(codec.StatusKind), message)
}

// frameLengthSize is the size of the length with which an event in protobuf begins.
const frameLengthSize = 4

// protobufEvent returns a watch event in protobuf: its length in four bytes, then a WatchEvent (field 1 its type, field 2 a RawExtension whose field 1
// is the enveloped object).
func protobufEvent(kind string, head, message []byte) []byte {
	envelope := codec.EnvelopeSize(head, len(message))
	extension := fieldSize(envelope)
	size := fieldSize(len(kind)) + fieldSize(extension)
	b := binary.BigEndian.AppendUint32(make([]byte, 0, frameLengthSize+size), uint32(size))
	b = appendMessage(b, 1, []byte(kind))
	b = append(b, 2<<3|2)
	b = binary.AppendUvarint(b, uint64(extension))
	b = append(b, 1<<3|2)
	b = binary.AppendUvarint(b, uint64(envelope))
	return codec.AppendEnvelope(b, head, message)
}

// partialFrames encodes events of PartialObjectMetadata.
type partialFrames struct {
	jsonFrames
	version  string
	protobuf bool
}

func (f partialFrames) contentType() string {
	if f.protobuf {
		return protobufFrames{}.contentType()
	}
	return codec.JSONType
}

func (f partialFrames) event(_ *cache.Change, kind cache.ChangeType, it *cache.Item, _ bool) ([]byte, error) {
	gvk := f.kind()
	if f.protobuf {
		message, err := codec.AppendPartial(nil, it.Raw())
		if err != nil {
			return nil, err
		}
		return protobufEvent(string(kind), codec.EnvelopeHead(gvk), message), nil
	}
	b, err := appendPartial(appendType(make([]byte, 0, typicalRowSize), string(kind)), jsonHead(gvk), it)
	return append(b, "}\n"...), err
}

func (f partialFrames) kind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: metav1.GroupName, Version: f.version, Kind: "PartialObjectMetadata"}
}

func (f partialFrames) object(kind string, obj catalog.Object) ([]byte, error) {
	if f.protobuf {
		message, err := (&metav1.PartialObjectMetadata{ObjectMeta: *MetaOf(obj)}).Marshal()
		if err != nil {
			return nil, err
		}
		return protobufEvent(kind, codec.EnvelopeHead(f.kind()), message), nil
	}
	body, err := PartialJSON(obj, f.version)
	if err != nil {
		return nil, err
	}
	return append(append(appendType(nil, kind), body...), "}\n"...), nil
}

func (f partialFrames) failure(status metav1.Status) []byte {
	if f.protobuf {
		return protobufFrames{f.end}.failure(status)
	}
	return f.jsonFrames.failure(status)
}

// tableFrames encodes events of a Table with one row; only the first has columnDefinitions.
type tableFrames struct {
	jsonFrames
	version string
	include metav1.IncludeObjectPolicy
	first   bool
}

func (f *tableFrames) event(_ *cache.Change, kind cache.ChangeType, it *cache.Item, _ bool) ([]byte, error) {
	b := f.open(string(kind), it.Revision)
	b, err := f.end.appendRow(b, it, f.include, f.version, &clock{now: time.Now()})
	return append(b, "]}}\n"...), err
}

func (f *tableFrames) object(kind string, obj catalog.Object) ([]byte, error) {
	revision, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return nil, err
	}
	partial, err := PartialJSON(obj, f.version)
	if err != nil {
		return nil, err
	}
	b := f.open(kind, revision)
	b = append(append(append(b, `{"cells":null,"object":`...), partial...), '}')
	return append(b, "]}}\n"...), nil
}

func (f *tableFrames) open(kind string, revision int64) []byte {
	b := append(appendType(make([]byte, 0, typicalRowSize), kind), `{"kind":"Table","apiVersion":"meta.k8s.io/`...)
	b = append(append(b, f.version...), `","metadata":{"resourceVersion":"`...)
	b = strconv.AppendInt(b, revision, 10)
	b = append(b, `"},"columnDefinitions":`...)
	if f.first {
		b = append(b, f.end.columns()...)
		f.first = false
	} else {
		b = append(b, "null"...)
	}
	return append(b, `,"rows":[`...)
}
