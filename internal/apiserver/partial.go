package apiserver

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

// Who wants no more of objects than their metadata gets it from their messages, without the rest being looked at: all objects have it in the same
// place there, which is also where PartialObjectMetadata has it.

// answerPartial sends the metadata of one stored object.
func (rq *Request) answerPartial(code int, it *cache.Item) error {
	gvk := rq.partialKind("PartialObjectMetadata")
	if rq.Accept.Media == codec.Protobuf {
		message, err := codec.AppendPartial(nil, it.Raw())
		if err != nil {
			return err
		}
		rq.send(code, codec.AppendEnvelope(nil, codec.EnvelopeHead(gvk), message))
		return nil
	}
	b, err := appendPartial(nil, jsonHead(gvk), it)
	if err != nil {
		return err
	}
	return rq.sendJSON(code, b)
}

// answerPartials sends the metadata of the objects of a page.
func (rq *Request) answerPartials(page registry.Page) error {
	meta, list := listMeta(page), rq.partialKind("PartialObjectMetadataList")
	if rq.Accept.Media == codec.Protobuf && page.Long() {
		return rq.streamLongProtobuf(page, codec.EnvelopeHead(list), func(it *cache.Item) ([]byte, error) { return codec.AppendPartial(nil, it.Raw()) })
	}
	if rq.Accept.Media == codec.Protobuf {
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
			b, _ = codec.AppendPartial(b, page.Items[i].Raw()) // its size was found
			return b
		}
		rq.streamMessages(codec.EnvelopeHead(list), encoded, 0, len(sizes), func(i int) int { return sizes[i] }, item)
		return nil
	}
	m, err := json.Marshal(meta)
	if err != nil {
		return err
	}
	head := append(append(jsonHead(list), `"metadata":`...), m...)
	head = append(head, `,"items":[`...)
	itemHead := jsonHead(rq.partialKind("PartialObjectMetadata"))
	if page.Long() {
		return rq.streamLong(page, head, func(b []byte, it *cache.Item) ([]byte, error) { return appendPartial(b, itemHead, it) })
	}
	return rq.sendItems(http.StatusOK, head, len(page.Items), typicalRow, func(b []byte, i int) ([]byte, error) {
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
	brace := len(b) - 1 // where head has a comma, which is what goes there in the end
	if b, err = plan.AppendJSON(b[:brace], it.Raw()); err != nil {
		return nil, err
	}
	b[brace] = ','
	return b, nil
}

// partialHead begins those of v1.
var partialHead = jsonHead(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))

var partialPlan = sync.OnceValues(func() (*transcode.Plan, error) {
	return transcode.Compile(reflect.TypeFor[metav1.PartialObjectMetadata]())
})

// partialJSON is the PartialObjectMetadata of an object that is not stored like that.
func partialJSON(obj catalog.Object, version string) ([]byte, error) {
	partial := &metav1.PartialObjectMetadata{ObjectMeta: *metaOf(obj)}
	partial.APIVersion, partial.Kind = metav1.GroupName+"/"+version, "PartialObjectMetadata"
	return json.Marshal(partial)
}

func metaOf(obj catalog.Object) *metav1.ObjectMeta {
	return obj.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta)
}
