package custom

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"skiff/internal/catalog"
)

// Object is a custom object in one version of its definition: the metadata, and everything else but apiVersion and kind as JSON.
//
// The JSON is decoded when somebody asks for the fields, and encoded again when it is needed after a change. Reading an object is safe for concurrent use.
type Object struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	version  *Version
	in       string                  // the name of the version that the content is in: another than that of version only while it is read from the store
	sentKind string                  // the kind that a client has sent, which validation compares; empty if it sent none
	epoch    uint64                  // of the schema by which the object was last pruned and got its defaults; 0 if it was not
	content  atomic.Pointer[content] // nil is an object without other fields
	rulesRun *catalog.RulesRun       // of the last validation, until it is taken
}

// content is everything of an object but apiVersion, kind and metadata, in two forms of which at least one is there. It is immutable once it has JSON:
// fields without JSON belong to one object alone.
type content struct {
	json   []byte
	fields map[string]any
}

// The fields of the message in which custom objects are kept: the metadata, as in the messages of all other kinds, the JSON of everything else, and the
// name of the version that they are in, which is left out if it is Resource.first.
const (
	metadataField = 1
	contentField  = 2
	versionField  = 3
)

var noContent = []byte("{}")

var errMalformed = errors.New("malformed message of a custom object")

// StoredVersion returns the name of the version that the object is in, or in which it is to be stored.
func (o *Object) StoredVersion() string { return o.in }

// Version returns the version of the definition in which the object is.
func (o *Object) Version() *Version { return o.version }

// Epoch returns the number of the schema by which the object was last pruned and got its defaults.
func (o *Object) Epoch() uint64 { return o.epoch }

// Fields returns the fields of the object but apiVersion, kind and metadata. They must not be changed: see SetFields.
func (o *Object) Fields() map[string]any {
	c := o.content.Load()
	switch {
	case c == nil:
		return nil
	case c.fields != nil:
		return c.fields
	}
	fields := map[string]any{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(c.json, &fields); err != nil {
		return nil // what Unmarshal and UnmarshalStored take is valid
	}
	o.content.CompareAndSwap(c, &content{c.json, fields})
	return fields
}

// SetFields replaces the fields of the object but apiVersion, kind and metadata. The map belongs to the object afterwards.
func (o *Object) SetFields(fields map[string]any) {
	if len(fields) == 0 {
		o.content.Store(nil)
		return
	}
	o.content.Store(&content{fields: fields})
}

// JSON returns the JSON of the fields but apiVersion, kind and metadata. It must not be changed.
func (o *Object) JSON() ([]byte, error) {
	c := o.content.Load()
	if c == nil {
		return noContent, nil
	}
	if c.json != nil {
		return c.json, nil
	}
	encoded, err := json.Marshal(c.fields)
	if err != nil {
		return nil, err
	}
	o.content.CompareAndSwap(c, &content{encoded, c.fields})
	return encoded, nil
}

// DeepCopyObject returns a copy of the object. The content, which then has JSON, is shared.
func (o *Object) DeepCopyObject() runtime.Object {
	_, _ = o.JSON() // what was decoded from JSON can be encoded
	c := &Object{TypeMeta: o.TypeMeta, version: o.version, in: o.in, sentKind: o.sentKind, epoch: o.epoch}
	o.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.content.Store(o.content.Load())
	return c
}

// Size returns the size of the object's message.
func (o *Object) Size() int {
	encoded, err := o.JSON()
	if err != nil {
		return 0
	}
	size := fieldSize(o.ObjectMeta.Size()) + fieldSize(len(encoded))
	if in := o.writtenVersion(); in != "" {
		size += fieldSize(len(in))
	}
	return size
}

// writtenVersion returns the version that the object's message names; empty if it names none.
func (o *Object) writtenVersion() string {
	if o.version == nil || o.in == o.version.resource.first {
		return ""
	}
	return o.in
}

// Marshal returns the object's message.
func (o *Object) Marshal() ([]byte, error) {
	encoded, err := o.JSON()
	if err != nil {
		return nil, err
	}
	metadata, in := o.ObjectMeta.Size(), o.writtenVersion()
	size := fieldSize(metadata) + fieldSize(len(encoded))
	if in != "" {
		size += fieldSize(len(in))
	}
	b := make([]byte, 0, size)
	b = binary.AppendUvarint(append(b, metadataField<<3|2), uint64(metadata))
	start := len(b)
	b = b[:start+metadata]
	if _, err := o.ObjectMeta.MarshalToSizedBuffer(b[start:]); err != nil {
		return nil, err
	}
	b = binary.AppendUvarint(append(b, contentField<<3|2), uint64(len(encoded)))
	b = append(b, encoded...)
	if in != "" {
		b = append(binary.AppendUvarint(append(b, versionField<<3|2), uint64(len(in))), in...)
	}
	return b, nil
}

// MarshalTo writes the object's message to the beginning of b.
func (o *Object) MarshalTo(b []byte) (int, error) {
	message, err := o.Marshal()
	if err != nil {
		return 0, err
	}
	if len(message) > len(b) {
		return 0, fmt.Errorf("the message of the custom object has %d bytes, the buffer %d", len(message), len(b))
	}
	return copy(b, message), nil
}

// MarshalToSizedBuffer writes the object's message to the end of b.
func (o *Object) MarshalToSizedBuffer(b []byte) (int, error) {
	size := o.Size()
	if size > len(b) {
		return 0, fmt.Errorf("the message of the custom object has %d bytes, the buffer %d", size, len(b))
	}
	return o.MarshalTo(b[len(b)-size:])
}

// Unmarshal sets the object to what a message says. The object keeps parts of the message.
func (o *Object) Unmarshal(message []byte) error {
	o.ObjectMeta = metav1.ObjectMeta{}
	o.content.Store(nil)
	o.epoch = 0
	if o.in = ""; o.version != nil {
		o.in = o.version.resource.first
	}
	return eachField(message, func(field uint64, value []byte) error {
		switch field {
		case metadataField: // it may occur twice: protobuf merges both
			return o.ObjectMeta.Unmarshal(value)
		case contentField:
			if len(value) > len(noContent) {
				o.content.Store(&content{json: value})
			}
		case versionField:
			o.in = string(value)
		}
		return nil
	})
}

// ContentOf returns the JSON of everything but apiVersion, kind and metadata in the message of a custom object.
func ContentOf(message []byte) ([]byte, error) {
	found := noContent
	err := eachField(message, func(field uint64, value []byte) error {
		if field == contentField {
			found = value
		}
		return nil
	})
	return found, err
}

// eachField calls f for the fields of a message, all of which have a length.
func eachField(message []byte, f func(field uint64, value []byte) error) error {
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 || tag&7 != 2 {
			return errMalformed
		}
		size, m := binary.Uvarint(message[n:])
		if m <= 0 || size > uint64(len(message)-n-m) {
			return errMalformed
		}
		end := n + m + int(size)
		if err := f(tag>>3, message[n+m:end:end]); err != nil {
			return err
		}
		message = message[end:]
	}
	return nil
}

func fieldSize(n int) int {
	var length [binary.MaxVarintLen64]byte
	return 1 + binary.PutUvarint(length[:], uint64(n)) + n
}

// MarshalJSON returns the object as JSON without kind and apiVersion.
func (o *Object) MarshalJSON() ([]byte, error) {
	metadata, err := json.Marshal(&o.ObjectMeta)
	if err != nil {
		return nil, err
	}
	encoded, err := o.JSON()
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, len(metadata)+len(encoded)+16)
	b = append(append(b, `{"metadata":`...), metadata...)
	if len(encoded) <= len(noContent) {
		return append(b, '}'), nil
	}
	return append(append(b, ','), encoded[1:]...), nil
}

// UnmarshalStored sets the object to the JSON of a stored value. It only looks at the root: the fields are decoded when somebody asks for them.
func (o *Object) UnmarshalStored(value []byte) error {
	var root map[string]json.RawMessage
	if err := json.Unmarshal(value, &root); err != nil {
		return err
	}
	o.ObjectMeta = metav1.ObjectMeta{}
	if metadata, ok := root["metadata"]; ok {
		if err := o.unmarshalStoredMetadata(metadata); err != nil {
			return err
		}
	}
	o.in = storedVersion(root["apiVersion"])
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		delete(root, name)
	}
	o.content.Store(nil)
	o.epoch = 0
	if o.Generation == 0 {
		o.Generation = 1 // which very old objects lack
	}
	if len(root) == 0 {
		return nil
	}
	encoded, err := json.Marshal(root) // in the order of names, as objects that are written here
	if err != nil {
		return err
	}
	o.content.Store(&content{json: encoded})
	return nil
}

// storedVersion returns the name of the version in the JSON of an apiVersion; empty if it has none.
func storedVersion(apiVersion []byte) string {
	var text string
	if json.Unmarshal(apiVersion, &text) != nil {
		return ""
	}
	return text[strings.LastIndexByte(text, '/')+1:]
}

// unmarshalStoredMetadata decodes stored metadata. What is malformed in it, as objects of old servers may be, is dropped.
func (o *Object) unmarshalStoredMetadata(metadata []byte) error {
	if err := kjson.UnmarshalCaseSensitivePreserveInts(metadata, &o.ObjectMeta); err == nil {
		return nil
	}
	var fields map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(metadata, &fields); err != nil {
		return err
	}
	found, _, _, err := objectmeta.GetObjectMetaWithOptions(map[string]any{"metadata": fields}, objectmeta.ObjectMetaOptions{DropMalformedFields: true})
	if err == nil && found != nil {
		o.ObjectMeta = *found
	}
	return err
}

// UnmarshalJSON sets the object to the JSON that a client has sent, without the fields that its schema does not have.
func (o *Object) UnmarshalJSON(data []byte) error {
	_, err := o.unmarshal(data, false)
	return err
}

// UnmarshalStrict is UnmarshalJSON. It also returns what is wrong with the JSON although it could be decoded: duplicate and unknown fields.
func (o *Object) UnmarshalStrict(data []byte) (strict []error, err error) {
	return o.unmarshal(data, true)
}

func (o *Object) unmarshal(data []byte, report bool) (strict []error, err error) {
	root := map[string]any{}
	if report {
		strict, err = kjson.UnmarshalStrict(data, &root)
	} else {
		err = kjson.UnmarshalCaseSensitivePreserveInts(data, &root)
	}
	if err != nil {
		return nil, err
	}
	unknown, err := o.SetRoot(root, report)
	if err != nil {
		return nil, err
	}
	for _, path := range unknown {
		strict = append(strict, fmt.Errorf("unknown field %q", path))
	}
	return strict, nil
}

// SetRoot sets the object to decoded JSON with apiVersion, kind and metadata, which belongs to the object afterwards. Fields that the schema does not
// have are dropped; their paths are returned if report is set.
func (o *Object) SetRoot(root map[string]any, report bool) (unknown []string, err error) {
	for _, name := range []string{"apiVersion", "kind"} {
		if value, ok := root[name]; ok {
			if _, isString := value.(string); !isString {
				return nil, fmt.Errorf(".%s accessor error: %v is of the type %T, expected string", name, value, value)
			}
		}
	}
	o.sentKind, _ = root["kind"].(string)
	metadata, _, unknown, err := objectmeta.GetObjectMetaWithOptions(root, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: report})
	if err != nil {
		return nil, err
	}
	o.ObjectMeta = metav1.ObjectMeta{}
	if metadata != nil {
		o.ObjectMeta = *metadata
	}
	more, err := o.version.prune(root, report)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		delete(root, name)
	}
	o.epoch = 0
	o.SetFields(root)
	return append(unknown, more...), nil
}

// Root returns the object as decoded JSON with apiVersion and kind, and with all of the metadata. The fields below the root must not be changed.
func (o *Object) Root() (map[string]any, error) {
	metadata, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&o.ObjectMeta)
	if err != nil {
		return nil, err
	}
	if metadata["creationTimestamp"] == nil {
		delete(metadata, "creationTimestamp")
	}
	return o.root(metadata), nil
}

// validated returns the object as schemas are asked about it: of the metadata they can only concern the name.
func (o *Object) validated() map[string]any {
	metadata := map[string]any{"name": o.Name}
	if o.GenerateName != "" {
		metadata["generateName"] = o.GenerateName
	}
	return o.root(metadata)
}

func (o *Object) root(metadata map[string]any) map[string]any {
	fields := o.Fields()
	root := make(map[string]any, len(fields)+3)
	for name, value := range fields {
		root[name] = value
	}
	root["apiVersion"], root["kind"], root["metadata"] = o.version.kind.GroupVersion().String(), cmp.Or(o.sentKind, o.version.kind.Kind), metadata
	return root
}

// ownFields returns the fields for the caller to change and to hand back to SetFields. stored reports that they were not decoded from what a client sent.
func (o *Object) ownFields() (fields map[string]any, stored bool, err error) {
	c := o.content.Load()
	switch {
	case c == nil:
		return map[string]any{}, false, nil
	case c.json == nil:
		return c.fields, false, nil
	}
	fields = map[string]any{}
	return fields, true, kjson.UnmarshalCaseSensitivePreserveInts(c.json, &fields)
}
