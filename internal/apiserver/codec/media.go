package codec

import (
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/munnerz/goautoneg"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Media is an encoding of objects on the wire.
type Media int

const (
	JSON Media = iota
	YAML
	Protobuf
)

// The media types of the encodings.
const (
	JSONType     = "application/json"
	YAMLType     = "application/yaml"
	ProtobufType = "application/vnd.kubernetes.protobuf"
)

var mediaTypes = []string{JSON: JSONType, YAML: YAMLType, Protobuf: ProtobufType}

// String returns the media type.
func (m Media) String() string { return mediaTypes[m] }

// Shape is the form in which a client requests objects: as they are, as a table, or only their metadata.
type Shape int

const (
	AsObject Shape = iota
	AsTable
	AsPartial     // PartialObjectMetadata
	AsPartialList // PartialObjectMetadataList
)

// Accepted is the negotiated form of a response.
type Accepted struct {
	Media   Media
	Shape   Shape
	Version string // the version of meta.k8s.io for shapes other than AsObject: v1 or v1beta1
	Pretty  bool
}

// Negotiate returns the first encoding and shape of an Accept header that the server supports. shapes are those that the endpoint offers
// besides AsObject.
func Negotiate(header string, shapes ...Shape) (Accepted, error) {
	switch header {
	case ProtobufType, "application/vnd.kubernetes.protobuf,application/json":
		return Accepted{Media: Protobuf}, nil
	}
	return negotiate(header, false, shapes)
}

// NegotiateJSON is Negotiate for objects that have no protobuf form: clients get them as JSON or YAML, and as protobuf only in other shapes than AsObject.
func NegotiateJSON(header string, shapes ...Shape) (Accepted, error) {
	return negotiate(header, true, shapes)
}

func negotiate(header string, jsonObjects bool, shapes []Shape) (Accepted, error) {
	switch header {
	case "", "*/*", JSONType, "application/json, */*":
		return Accepted{}, nil
	}
	mediaKnown := false
	for _, clause := range goautoneg.ParseAccept(header) {
		for media, name := range mediaTypes {
			if sent := clause.Type + "/" + clause.SubType; sent != name && sent != "*/*" {
				continue
			}
			mediaKnown = true
			if a, ok := accept(clause.Params, Media(media), shapes); ok && !(jsonObjects && a.Media == Protobuf && a.Shape == AsObject) {
				return a, nil
			}
		}
	}
	if !mediaKnown {
		err := NotAcceptable("406: Not Acceptable\n\nAvailable representations: " + strings.Join(mediaTypes, ", "))
		err.ErrStatus.Details = &metav1.StatusDetails{}
		return Accepted{}, err
	}
	return Accepted{}, NotAcceptable("only the following media types are accepted: " + strings.Join(mediaTypes, ", "))
}

func accept(params map[string]string, media Media, shapes []Shape) (Accepted, bool) {
	a := Accepted{Media: media, Pretty: params["pretty"] == "1"}
	if s := params["stream"]; s != "" && s != "watch" {
		return a, false
	}
	if sv := params["sv"]; sv != "" {
		return a, false
	}
	as, group, version := params["as"], params["g"], params["v"]
	if as == "" && group == "" && version == "" {
		return a, true
	}
	if group != metav1.GroupName || version != "v1" && version != "v1beta1" {
		return a, false
	}
	a.Version = version
	switch as {
	case "Table":
		a.Shape = AsTable
	case "PartialObjectMetadata":
		a.Shape = AsPartial
	case "PartialObjectMetadataList":
		a.Shape = AsPartialList
	default:
		return a, false
	}
	if a.Shape == AsTable && media == Protobuf {
		return a, false // Table has no protobuf form
	}
	for _, s := range shapes {
		if s == a.Shape {
			return a, true
		}
	}
	return a, false
}

// MediaOf returns the encoding of a request body from its Content-Type.
func MediaOf(contentType string) (Media, error) {
	if contentType == "" {
		return JSON, nil
	}
	for m, t := range mediaTypes {
		if contentType == t {
			return Media(m), nil
		}
	}
	if name, _, err := mime.ParseMediaType(contentType); err == nil {
		for m, t := range mediaTypes {
			if name == t {
				return Media(m), nil
			}
		}
	}
	return 0, unsupportedMedia()
}

func unsupportedMedia() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("the body of the request was in an unknown format - accepted media types include: %s", strings.Join(mediaTypes, ", ")),
	}}
}

// NotAcceptable returns the error for a request whose response is not available in a form that the client accepts.
func NotAcceptable(message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable, Message: message,
	}}
}
