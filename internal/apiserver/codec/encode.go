package codec

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

var errMalformed = errors.New("malformed protobuf message")

func uvarint(b []byte) (uint64, int) { return binary.Uvarint(b) }

func appendVarint(b []byte, n int) []byte { return binary.AppendUvarint(b, uint64(n)) }

// jsonHead returns the beginning of the JSON of an object of a kind, which replaces the opening brace.
func jsonHead(gvk schema.GroupVersionKind) []byte {
	head := append([]byte(nil), `{"kind":`...)
	head = strconv.AppendQuote(head, gvk.Kind)
	if gvk.Version != "" {
		head = append(head, `,"apiVersion":`...)
		head = strconv.AppendQuote(head, gvk.GroupVersion().String())
	}
	return append(head, ',')
}

// appendJSON appends an object as JSON with the given kind. The object itself has no TypeMeta.
func appendJSON(b []byte, gvk schema.GroupVersionKind, obj runtime.Object) ([]byte, error) {
	body, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	return AppendKind(b, jsonHead(gvk), body), nil
}

// AppendKind appends the JSON object body with its opening brace replaced by head, which holds kind and apiVersion.
func AppendKind(b, head, body []byte) []byte {
	if len(body) == 2 { // {}
		b = append(b, head[:len(head)-1]...)
		return append(b, '}')
	}
	b = append(b, head...)
	return append(b, body[1:]...)
}

// Single encodes an object for a response. The object's TypeMeta is empty; gvk is its kind.
func Single(obj runtime.Object, gvk schema.GroupVersionKind, a Accepted) ([]byte, error) {
	if a.Media == Protobuf {
		m, ok := obj.(interface{ Marshal() ([]byte, error) })
		if !ok {
			return nil, NotAcceptable("the object has no protobuf form")
		}
		message, err := m.Marshal()
		if err != nil {
			return nil, err
		}
		return AppendEnvelope(nil, EnvelopeHead(gvk), message), nil
	}
	b, err := appendJSON(nil, gvk, obj)
	if err != nil {
		return nil, err
	}
	return Finish(b, a)
}

// Finish converts JSON to the negotiated form: YAML, indented JSON, or JSON with a newline appended.
func Finish(b []byte, a Accepted) ([]byte, error) {
	switch {
	case a.Media == YAML:
		return yaml.JSONToYAML(b)
	case a.Pretty:
		var out bytes.Buffer
		if err := json.Indent(&out, b, "", "  "); err != nil {
			return nil, err
		}
		return out.Bytes(), nil
	default:
		return append(b, '\n'), nil
	}
}

// Status encodes a Status, whose kind is StatusKind.
func Status(s *metav1.Status, a Accepted) []byte {
	c := *s
	c.TypeMeta = metav1.TypeMeta{}
	b, err := Single(&c, StatusKind, a)
	if err != nil {
		return []byte(err.Error())
	}
	return b
}

// StatusKind is the kind of a Status in responses: v1 without a group.
var StatusKind = schema.GroupVersionKind{Version: "v1", Kind: "Status"}
