package response

import (
	"encoding/json"
	"net/http"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/codec/transcode"
	"skiff/internal/apiserver/registry"
	"skiff/internal/cache"
	"skiff/internal/catalog"
)

// PartialObjectMetadata is cut out of stored messages without decoding the rest of them: all objects have their metadata in the same field, which is
// also where PartialObjectMetadata has it.

// partial answers with the PartialObjectMetadata of one stored object.
func (rs *Responder) partial(code int, it *cache.Item) error {
	gvk := rs.PartialKind("PartialObjectMetadata")
	if rs.Accept.Media == codec.Protobuf {
		message, err := codec.AppendPartial(nil, it.Raw())
		if err != nil {
			return err
		}
		rs.send(code, codec.AppendEnvelope(nil, codec.EnvelopeHead(gvk), message))
		return nil
	}
	b, err := appendPartial(nil, jsonHead(gvk), it)
	if err != nil {
		return err
	}
	return rs.sendJSON(code, b)
}

// partials answers with the PartialObjectMetadataList of a page.
func (rs *Responder) partials(page registry.Page) error {
	meta, list := ListMeta(page), rs.PartialKind("PartialObjectMetadataList")
	if rs.Accept.Media == codec.Protobuf && page.Long() {
		return rs.streamLongProtobuf(page, codec.EnvelopeHead(list), func(it *cache.Item) ([]byte, error) { return codec.AppendPartial(nil, it.Raw()) })
	}
	if rs.Accept.Media == codec.Protobuf {
		encoded, err := meta.Marshal()
		if err != nil {
			return err
		}
		sizes := make([]int, len(page.Items))
		for i, it := range page.Items {
			if sizes[i], err = codec.PartialSize(it.Raw()); err != nil {
				return err
			}
		}
		item := func(b []byte, i int) []byte {
			b, _ = codec.AppendPartial(b, page.Items[i].Raw()) // it cannot fail: PartialSize did not
			return b
		}
		rs.streamMessages(codec.EnvelopeHead(list), encoded, 0, len(sizes), func(i int) int { return sizes[i] }, item)
		return nil
	}
	m, err := json.Marshal(meta)
	if err != nil {
		return err
	}
	head := append(append(jsonHead(list), `"metadata":`...), m...)
	head = append(head, `,"items":[`...)
	itemHead := jsonHead(rs.PartialKind("PartialObjectMetadata"))
	if page.Long() {
		return rs.streamLongJSON(page, head, func(b []byte, it *cache.Item) ([]byte, error) { return appendPartial(b, itemHead, it) })
	}
	return rs.sendItems(http.StatusOK, head, len(page.Items), typicalRowSize, func(b []byte, i int) ([]byte, error) {
		return appendPartial(b, itemHead, page.Items[i])
	})
}

// appendPartial appends an item's PartialObjectMetadata as JSON.
func appendPartial(b, head []byte, it *cache.Item) ([]byte, error) {
	plan, err := partialPlan()
	if err != nil {
		return nil, err
	}
	b = append(b, head...)
	brace := len(b) - 1 // where head ends with a comma; the plan begins with a brace, which the comma replaces again
	if b, err = plan.AppendJSON(b[:brace], it.Raw()); err != nil {
		return nil, err
	}
	b[brace] = ','
	return b, nil
}

// partialHead is the JSON head of a PartialObjectMetadata of version v1.
var partialHead = jsonHead(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))

var partialPlan = sync.OnceValues(func() (*transcode.Plan, error) {
	return transcode.Compile(reflect.TypeFor[metav1.PartialObjectMetadata]())
})

// PartialJSON returns the PartialObjectMetadata of a decoded object as JSON.
func PartialJSON(obj catalog.Object, version string) ([]byte, error) {
	partial := &metav1.PartialObjectMetadata{ObjectMeta: *MetaOf(obj)}
	partial.APIVersion, partial.Kind = metav1.GroupName+"/"+version, "PartialObjectMetadata"
	return json.Marshal(partial)
}

// MetaOf returns the metadata of an object, which is shared with the object.
func MetaOf(obj catalog.Object) *metav1.ObjectMeta {
	return obj.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta)
}
