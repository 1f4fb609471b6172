package codec

import (
	"bytes"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"skiff/internal/cache"
	"skiff/internal/catalog"
	"skiff/internal/catalog/custom"
	"skiff/internal/catalog/initializers"
)

// Stored encodes and decodes the stored objects of one resource.
type Stored struct {
	info   *catalog.Info
	head   []byte
	asJSON bool
}

// NewStored returns the storage codec of a resource. asJSON stores JSON instead of protobuf, also where the resource does not ask for it; both can
// always be decoded.
func NewStored(info *catalog.Info, asJSON bool) *Stored {
	return &Stored{info: info, head: EnvelopeHead(info.StorageKind()), asJSON: asJSON || info.StoredAsJSON}
}

// EncodeUninitialized is Encode for an object that is not initialized.
func (s *Stored) EncodeUninitialized(obj catalog.Object, in *initializers.Initializers) (value, message []byte, err error) {
	if value, message, err = s.Encode(obj); err != nil {
		return nil, nil, err
	}
	message = append(bytes.Clone(message), in.Suffix()...)
	if s.asJSON {
		value, err = WithInitializers(value, in)
		return value, message, err
	}
	return AppendEnvelope(nil, s.head, message), message, nil
}

// Encode returns the value to store for an object, and its protobuf message without envelope. The object must have no resourceVersion.
func (s *Stored) Encode(obj catalog.Object) (value, message []byte, err error) {
	if s.asJSON {
		kind := s.info.StorageKind()
		if o, ok := obj.(*custom.Object); ok {
			kind.Version = o.StoredVersion()
		}
		if value, err = appendJSON(nil, kind, obj); err != nil {
			return nil, nil, err
		}
		message, err = obj.Marshal()
		return value, message, err
	}
	size := obj.Size()
	value = make([]byte, 0, EnvelopeSize(s.head, size))
	value = append(value, s.head...)
	value = appendVarint(value, size)
	start := len(value)
	value = value[:start+size]
	n, err := obj.MarshalToSizedBuffer(value[start:])
	if err != nil {
		return nil, nil, err
	}
	if n != size {
		return nil, nil, fmt.Errorf("failed to encode %s: wrote %d bytes where Size returned %d", s.info.GVK.Kind, n, size)
	}
	message = value[start : start+size : start+size]
	return append(value, unknownEnd...), message, nil
}

// Parse returns the cache item of a stored value.
func (s *Stored) Parse(value []byte, revision int64) (*cache.Item, error) {
	if !IsProtobuf(value) {
		if bytes.HasPrefix(value, encryptedPrefix) {
			return nil, &cache.UnreadableError{Err: errEncrypted}
		}
		obj := s.info.New().(catalog.Object)
		if err := s.unmarshal(value, obj); err != nil {
			return nil, err
		}
		obj.GetObjectKind().SetGroupVersionKind(s.info.GVK.GroupVersion().WithKind(""))
		message, err := obj.Marshal()
		if err != nil {
			return nil, err
		}
		in, err := initializersInJSON(value)
		if err != nil {
			return nil, err
		}
		return s.Item(obj, append(message, in.Suffix()...), revision), nil
	}
	message, err := openStored(value)
	if err != nil {
		return nil, err
	}
	if len(s.info.Fields) > 0 {
		obj := s.info.New().(catalog.Object)
		if err := obj.Unmarshal(message); err != nil {
			return nil, err
		}
		return s.Item(obj, message, revision), nil
	}
	meta, err := Metadata(message)
	if err != nil {
		return nil, err
	}
	it := cache.NewItem(message, revision)
	it.Uninitialized = initializers.Has(message)
	setMetadata(it, meta)
	return it, nil
}

// encryptedPrefix begins a value that is encrypted. Such values only get here if there is no configuration of encryption.
var encryptedPrefix = []byte("k8s:enc:")

var errEncrypted = errors.New("identity transformer tried to read encrypted data") // upstream's words

func (s *Stored) unmarshal(value []byte, obj catalog.Object) error {
	if s.info.UnmarshalStored != nil {
		return s.info.UnmarshalStored(value, obj)
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(value, obj)
}

// Bare returns a cache item of a stored value that has only its bytes, which costs less than Parse.
func (s *Stored) Bare(value []byte, revision int64) (*cache.Item, error) {
	if !IsProtobuf(value) {
		return s.Parse(value, revision)
	}
	message, err := openStored(value)
	if err != nil {
		return nil, err
	}
	it := cache.NewItem(message, revision)
	it.Uninitialized = initializers.Has(message)
	return it, nil
}

// Item returns the cache item of an object and its message.
func (s *Stored) Item(obj catalog.Object, message []byte, revision int64) *cache.Item {
	it := cache.NewItem(message, revision)
	it.Uninitialized = initializers.Has(message)
	setMetadata(it, obj)
	if o, ok := obj.(*custom.Object); ok && o.Epoch() != 0 {
		it.SetNormalized(o.Epoch(), message)
	}
	if len(s.info.Fields) > 0 {
		it.Fields = make([]string, len(s.info.Fields))
		for i, f := range s.info.Fields {
			it.Fields[i] = f.Value(obj)
		}
	}
	return it
}

func setMetadata(it *cache.Item, m metav1.Object) {
	it.Namespace, it.Name, it.UID, it.Labels = m.GetNamespace(), m.GetName(), string(m.GetUID()), m.GetLabels()
}

// Object decodes an item's message and applies the defaults.
func (s *Stored) Object(raw []byte) (runtime.Object, error) {
	obj := s.info.New().(catalog.Object)
	if err := obj.Unmarshal(raw); err != nil {
		return nil, err
	}
	s.info.Default(obj) // it may have been stored before some of its fields existed
	return obj, nil
}

// Metadata decodes only the metadata of an object's message.
func Metadata(message []byte) (*metav1.ObjectMeta, error) {
	meta := &metav1.ObjectMeta{}
	err := eachMetadata(message, func(_, content []byte) error { return meta.Unmarshal(content) })
	return meta, err
}

// AppendPartial appends the message of an object's PartialObjectMetadata: the metadata fields of the object's message, unchanged.
func AppendPartial(b, message []byte) ([]byte, error) {
	err := eachMetadata(message, func(field, _ []byte) error {
		b = append(b, field...)
		return nil
	})
	return b, err
}

// PartialSize returns the number of bytes that AppendPartial appends.
func PartialSize(message []byte) (size int, err error) {
	err = eachMetadata(message, func(field, _ []byte) error {
		size += len(field)
		return nil
	})
	return size, err
}

// eachMetadata calls f for the metadata of an object's message, which is field 1 and may occur several times: with the field's tag and length, and without.
func eachMetadata(message []byte, f func(field, content []byte) error) error {
	for len(message) > 0 {
		tag, start := uvarint(message)
		if start <= 0 {
			return errMalformed
		}
		rest, end := message[start:], 0
		switch tag & 7 {
		case 0:
			_, end = uvarint(rest)
		case 1:
			end = 8
		case 5:
			end = 4
		case 2:
			size, n := uvarint(rest)
			if n <= 0 || size > uint64(len(rest)-n) {
				return errMalformed
			}
			end = n + int(size)
			if tag>>3 == 1 {
				if err := f(message[:start+end], rest[n:end]); err != nil {
					return err
				}
			}
		}
		if end <= 0 || end > len(rest) {
			return errMalformed
		}
		message = rest[end:]
	}
	return nil
}
