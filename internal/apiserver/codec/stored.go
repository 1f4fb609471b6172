package codec

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"skiff/internal/cache"
	"skiff/internal/catalog"
)

// Stored converts objects of one resource to and from the bytes in the store.
type Stored struct {
	info   *catalog.Info
	head   []byte
	asJSON bool
}

// NewStored returns the storage codec of a resource. asJSON stores readable JSON instead of protobuf; both are always read.
func NewStored(info *catalog.Info, asJSON bool) *Stored {
	return &Stored{info: info, head: EnvelopeHead(info.StorageKind()), asJSON: asJSON}
}

// Encode returns the value to store for an object, and its bare protobuf message. The object must have no resourceVersion.
func (s *Stored) Encode(obj catalog.Object) (value, message []byte, err error) {
	if s.asJSON {
		if value, err = appendJSON(nil, s.info.StorageKind(), obj); err != nil {
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
		return nil, nil, fmt.Errorf("%s was encoded in %d bytes where it said %d", s.info.GVK.Kind, n, size)
	}
	message = value[start : start+size : start+size]
	return append(value, unknownEnd...), message, nil
}

// Parse makes a cache item of a stored value.
func (s *Stored) Parse(value []byte, revision int64) (*cache.Item, error) {
	if !IsProtobuf(value) {
		obj := s.info.New().(catalog.Object)
		if err := kjson.UnmarshalCaseSensitivePreserveInts(value, obj); err != nil {
			return nil, err
		}
		obj.GetObjectKind().SetGroupVersionKind(s.info.GVK.GroupVersion().WithKind(""))
		message, err := obj.Marshal()
		if err != nil {
			return nil, err
		}
		return s.Item(obj, message, revision), nil
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
	meta, err := metadataOf(message)
	if err != nil {
		return nil, err
	}
	it := cache.NewItem(message, revision)
	describe(it, meta)
	return it, nil
}

// Item makes a cache item of an object and its message.
func (s *Stored) Item(obj catalog.Object, message []byte, revision int64) *cache.Item {
	it := cache.NewItem(message, revision)
	describe(it, obj)
	if len(s.info.Fields) > 0 {
		it.Fields = make([]string, len(s.info.Fields))
		for i, f := range s.info.Fields {
			it.Fields[i] = f.Value(obj)
		}
	}
	return it
}

func describe(it *cache.Item, m metav1.Object) {
	it.Namespace, it.Name, it.UID, it.Labels = m.GetNamespace(), m.GetName(), string(m.GetUID()), m.GetLabels()
}

// Object decodes an item's message and completes it.
func (s *Stored) Object(raw []byte) (runtime.Object, error) {
	obj := s.info.New().(catalog.Object)
	if err := obj.Unmarshal(raw); err != nil {
		return nil, err
	}
	s.info.Default(obj) // it may date from a time before some of its fields
	return obj, nil
}

// metadataOf decodes nothing but the metadata of an object's message: its field 1, perhaps in several pieces.
func metadataOf(message []byte) (*metav1.ObjectMeta, error) {
	meta := &metav1.ObjectMeta{}
	for len(message) > 0 {
		tag, n := uvarint(message)
		if n <= 0 {
			return nil, errMalformed
		}
		message = message[n:]
		switch tag & 7 {
		case 0:
			_, n := uvarint(message)
			if n <= 0 {
				return nil, errMalformed
			}
			message = message[n:]
		case 1, 5:
			width := 8
			if tag&7 == 5 {
				width = 4
			}
			if len(message) < width {
				return nil, errMalformed
			}
			message = message[width:]
		case 2:
			size, n := uvarint(message)
			if n <= 0 || size > uint64(len(message)-n) {
				return nil, errMalformed
			}
			if tag>>3 == 1 {
				if err := meta.Unmarshal(message[n : n+int(size)]); err != nil {
					return nil, err
				}
			}
			message = message[n+int(size):]
		default:
			return nil, errMalformed
		}
	}
	return meta, nil
}

// Metadata decodes nothing but the metadata of an object's message.
func Metadata(message []byte) (*metav1.ObjectMeta, error) { return metadataOf(message) }
