package response

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/codec/transcode"
	"skiff/internal/apiserver/registry"
	"skiff/internal/cache"
	"skiff/internal/catalog"
	"skiff/internal/catalog/custom"
)

// Resource encodes the objects of a resource as they are served under one group version.
type Resource struct {
	Info     *catalog.Info
	Registry *registry.Registry // of the resource that stores the objects; nil if virtual
	hot      *cache.Hot         // decides which encoded forms are kept; nil if none are

	transcode              func() (appendJSON, error) // returns what transcodes stored messages to JSON; nil if they must be decoded
	envelope, listEnvelope []byte                     // what an object and a list begin with in protobuf
	jsonHead, listHead     []byte                     // what an object and a list begin with in JSON: the brace, kind and apiVersion
}

// NewResource returns the encodings of a resource. reg is nil if nothing of it is stored; hot is nil if encoded forms are not kept.
func NewResource(info *catalog.Info, reg *registry.Registry, hot *cache.Hot) *Resource {
	list := info.GVK
	list.Kind = info.ListKind
	res := &Resource{Info: info, Registry: reg, hot: hot,
		envelope: codec.EnvelopeHead(info.GVK), listEnvelope: codec.EnvelopeHead(list), jsonHead: jsonHead(info.GVK), listHead: jsonHead(list)}
	res.transcode = sync.OnceValues(func() (appendJSON, error) {
		if info.JSONOnly {
			return appendCustomJSON, nil
		}
		return transcoderOf(reflect.TypeOf(info.New()).Elem())
	})
	return res
}

// appendJSON appends the JSON of a stored message, without kind and apiVersion.
type appendJSON = func(b, message []byte) ([]byte, error)

// transcoderOf returns what transcodes messages of a type to JSON. It is nil for a type that holds whole objects of other kinds, as a StatefulSet
// holds claims: their messages lack the kind and apiVersion of these objects, which decoding restores by defaults.
func transcoderOf(t reflect.Type) (appendJSON, error) {
	if holdsKinds(t, true, map[reflect.Type]bool{}) {
		return nil, nil
	}
	plan, err := transcode.Compile(t)
	if err != nil {
		return nil, err
	}
	return plan.AppendJSON, nil
}

var typeMeta = reflect.TypeFor[metav1.TypeMeta]()

// holdsKinds reports whether a type has a TypeMeta below its root. seen has the types that were looked at: some, such as JSONSchemaProps, are recursive.
func holdsKinds(t reflect.Type, root bool, seen map[reflect.Type]bool) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return holdsKinds(t.Elem(), false, seen)
	case reflect.Struct:
		if !root && t == typeMeta {
			return true
		}
		if seen[t] {
			return false
		}
		seen[t] = true
		for i := range t.NumField() {
			f := t.Field(i)
			if f.IsExported() && !(root && f.Type == typeMeta) && holdsKinds(f.Type, false, seen) {
				return true
			}
		}
	}
	return false
}

// jsonHead returns what the JSON of an object of a kind begins with, up to the comma after its apiVersion.
func jsonHead(gvk schema.GroupVersionKind) []byte {
	return fmt.Appendf(nil, `{"kind":%s,"apiVersion":%s,`, strconv.Quote(gvk.Kind), strconv.Quote(gvk.GroupVersion().String()))
}

// internalName returns what upstream's error messages call the kind.
func (res *Resource) internalName() string { return codec.InternalName(res.Info.GVK) }

// Plain reports whether objects are served in the version in which they are stored.
func (res *Resource) Plain() bool { return res.Info.Stored == res.Info }

// appendCustomJSON appends the JSON of the message of a custom object, which has everything but the metadata as JSON already.
func appendCustomJSON(b, message []byte) ([]byte, error) {
	content, err := custom.ContentOf(message)
	if err != nil {
		return nil, err
	}
	plan, err := partialPlan()
	if err != nil {
		return nil, err
	}
	if b, err = plan.AppendJSON(b, message); err != nil || len(content) <= len("{}") {
		return b, err
	}
	b[len(b)-1] = ',' // in place of the brace that ended the metadata
	return append(b, content[1:]...), nil
}

// sharesFrames reports whether a watch event is the same for all who watch the resource: several versions of a custom resource have the same changes, and
// the events of each name its version. It is the same version for as long as there are changes of the resource.
func (res *Resource) sharesFrames() bool {
	if !res.Info.JSONOnly {
		return res.Plain()
	}
	return res.Info.New().(*custom.Object).Version().First()
}

// Served decodes an item in the version in which it is served.
func (res *Resource) Served(it *cache.Item) (catalog.Object, error) {
	obj, err := res.Registry.Decode(it)
	if err != nil {
		return nil, err
	}
	return res.Info.FromStored(obj), nil
}

// json returns the JSON of an item without kind and apiVersion. The bytes are kept while the item is hot, and nobody may change them.
func (res *Resource) json(it *cache.Item) ([]byte, error) {
	if !res.Plain() {
		obj, err := res.Served(it)
		if err != nil {
			return nil, err
		}
		return marshalWithInitializers(obj, it)
	}
	transcode, err := res.transcode()
	if err != nil {
		return nil, err
	}
	if it, err = res.Registry.Current(context.Background(), it); err != nil {
		return nil, err
	}
	var failure error
	b := it.Form(cache.JSON, res.hot, func() []byte {
		if transcode == nil {
			obj, err := res.Registry.Codec.Object(it.Raw())
			if err != nil {
				failure = err
				return nil
			}
			b, err := marshalWithInitializers(obj, it)
			failure = err
			return b
		}
		b := buffers.Get().(*[]byte)
		defer buffers.Put(b)
		*b, failure = transcode((*b)[:0], it.Raw())
		return bytes.Clone(*b)
	})
	return b, failure
}

// marshalWithInitializers returns the JSON of the object of an item, which does not have its initializers.
func marshalWithInitializers(obj any, it *cache.Item) ([]byte, error) {
	b, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	return codec.WithInitializers(b, codec.InitializersOf(it))
}

// appendJSON appends the JSON of an item as it is in a list. The bytes are not kept.
func (res *Resource) appendJSON(b []byte, it *cache.Item) ([]byte, error) {
	if res.Info.JSONOnly {
		body, err := res.json(it)
		return append(append(b, res.itemHead(body)...), res.itemRest(body)...), err
	}
	if res.Plain() {
		transcode, err := res.transcode()
		if err != nil {
			return nil, err
		}
		if transcode != nil {
			if it, err = res.Registry.Current(context.Background(), it); err != nil {
				return nil, err
			}
			return transcode(b, it.Raw())
		}
	}
	body, err := res.json(it)
	return append(b, body...), err
}

// message returns the protobuf message of an item, without its envelope.
func (res *Resource) message(it *cache.Item) ([]byte, error) {
	if res.Plain() {
		return it.Raw(), nil
	}
	obj, err := res.Served(it)
	if err != nil {
		return nil, err
	}
	message, err := obj.Marshal()
	return append(message, codec.InitializersOf(it).Suffix()...), err
}
