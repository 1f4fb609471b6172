package codec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"skiff/internal/cache"
	"skiff/internal/catalog/initializers"
)

// initializersKey is the name of the field in JSON. A body that does not contain it has no initializers, which is all that most requests pay.
const initializersKey = "initializers"

// initializersTag is the tag of the field in a message: number 16, with a length.
var initializersTag = []byte{0x82, 0x01}

// unknownInitializers is what strict decoding says of the field, which the Go types do not have.
const unknownInitializers = `unknown field "metadata.initializers"`

// SentInitializers returns the metadata.initializers of a body. sent is false if the body says nothing of them, as that of a client which does not know the
// field; initializers that are null or empty are sent, and nil.
func SentInitializers(body []byte, media Media) (in *initializers.Initializers, sent bool, err error) {
	switch {
	case media == Protobuf:
		return initializersInProtobuf(body)
	case !bytes.Contains(body, []byte(initializersKey)):
		return nil, false, nil
	case media == YAML:
		if body, err = yaml.YAMLToJSON(body); err != nil {
			return nil, false, nil // which decoding the object reports
		}
	}
	value := rawInitializers(body)
	if value == nil {
		return nil, false, nil
	}
	in, err = DecodeInitializers(value)
	return in, true, err
}

// DecodeInitializers decodes the JSON of metadata.initializers; nil if nothing is pending and nothing was refused.
func DecodeInitializers(value []byte) (*initializers.Initializers, error) {
	in := &initializers.Initializers{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(value, in); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("metadata.initializers: %v", err))
	}
	return normal(in), nil
}

// normal returns nil for initializers with which an object is initialized.
func normal(in *initializers.Initializers) *initializers.Initializers {
	if in.Done() {
		return nil
	}
	return in
}

// rawInitializers returns the JSON of metadata.initializers in the JSON of an object; nil if it is not there.
func rawInitializers(object []byte) []byte {
	var root struct {
		Metadata map[string]json.RawMessage `json:"metadata"`
	}
	if kjson.UnmarshalCaseSensitivePreserveInts(object, &root) != nil {
		return nil // which decoding the object reports
	}
	value, ok := root.Metadata[initializersKey]
	if ok && value == nil {
		return []byte("null")
	}
	return value
}

// initializersInProtobuf looks for the field that clients of Kubernetes before v1.16 know.
func initializersInProtobuf(body []byte) (*initializers.Initializers, bool, error) {
	if !IsProtobuf(body) || !bytes.Contains(body, initializersTag) {
		return nil, false, nil
	}
	message, err := openStored(body)
	if err != nil {
		return nil, false, nil // which decoding the object reports
	}
	in, err := initializers.FromMessage(message)
	if err != nil || in == nil {
		return nil, false, nil
	}
	return normal(in), true, nil
}

// initializersInJSON returns the initializers of an object that is stored as JSON.
func initializersInJSON(value []byte) (*initializers.Initializers, error) {
	if !bytes.Contains(value, []byte(initializersKey)) {
		return nil, nil
	}
	raw := rawInitializers(value)
	if raw == nil {
		return nil, nil
	}
	return DecodeInitializers(raw)
}

// InitializersOf returns the initializers of an item; nil if it is initialized.
func InitializersOf(it *cache.Item) *initializers.Initializers {
	if !it.Uninitialized {
		return nil
	}
	in, err := initializers.FromMessage(it.Message())
	if err != nil {
		return nil // only what can be decoded is in the cache
	}
	return in
}

var errNoMetadata = errors.New("the JSON of the object has no metadata")

// WithInitializers returns the JSON of an object with initializers in its metadata.
func WithInitializers(object []byte, in *initializers.Initializers) ([]byte, error) {
	if in == nil {
		return object, nil
	}
	value, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	// The metadata comes before everything but the kind and the apiVersion.
	const start = `"metadata":{`
	at := bytes.Index(object, []byte(start))
	if at < 0 {
		return nil, errNoMetadata
	}
	at += len(start)
	b := make([]byte, 0, len(object)+len(value)+len(initializersKey)+4)
	b = append(b, object[:at]...)
	b = append(append(append(b, '"'), initializersKey...), `":`...)
	b = append(b, value...)
	if object[at] != '}' {
		b = append(b, ',')
	}
	return append(b, object[at:]...), nil
}

// withoutInitializers removes what strict decoding says of metadata.initializers, which SentInitializers reads.
func withoutInitializers(strict []error) []error {
	var left []error
	for _, err := range strict {
		if err.Error() != unknownInitializers {
			left = append(left, err)
		}
	}
	return left
}
