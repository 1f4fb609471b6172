package response

import (
	"encoding/binary"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/registry"
	"skiff/internal/cache"
)

// A page that is Long is sent while it is read from the store, so that its size costs no memory. If the store compacts the revision meanwhile, the
// connection is aborted, and the client learns why when it asks again.

// longListSize is the assumed size of a long list; it only decides whether to compress.
const longListSize = 1 << 20

// mayStream reports whether the response can be sent without being in memory as a whole.
func (rs *Responder) mayStream() bool {
	return !(rs.reformatted() && rs.Accept.Media != codec.Protobuf) && (rs.Accept.Shape != codec.AsTable || rs.Resource.Info.Stored.Arrange == nil)
}

// longHead returns the JSON of a list up to its items.
func longHead(kind []byte, meta metav1.ListMeta, items string) ([]byte, error) {
	m, err := json.Marshal(meta)
	if err != nil {
		return nil, err
	}
	head := append([]byte(nil), kind...)
	head = append(append(head, `"metadata":`...), m...)
	return append(head, items...), nil
}

// streamLongJSON sends JSON that begins with head, up to the bracket of a list, and ends with the objects of a page.
func (rs *Responder) streamLongJSON(page registry.Page, head []byte, item func([]byte, *cache.Item) ([]byte, error)) error {
	rs.stream(longListSize, false, 0, func(l *listWriter) {
		l.buf = append(l.buf, head...)
		first := true
		err := page.Each(rs.Ctx, func(it *cache.Item) error {
			if !first {
				l.buf = append(l.buf, ',')
			}
			first = false
			b, err := item(l.buf, it)
			if err != nil {
				return err
			}
			l.buf = b
			l.flushIfFull()
			return l.err
		})
		if err != nil {
			l.err = err
			return
		}
		l.buf = append(l.buf, "]}\n"...)
	})
	return nil
}

// streamLongProtobuf sends the objects of a page as protobuf. The size of the list comes first, so that the page is read twice.
func (rs *Responder) streamLongProtobuf(page registry.Page, head []byte, message func(*cache.Item) ([]byte, error)) error {
	meta := ListMeta(page)
	encoded, err := meta.Marshal()
	if err != nil {
		return err
	}
	size := fieldSize(len(encoded))
	if err := page.Each(rs.Ctx, func(it *cache.Item) error {
		m, err := message(it)
		size += fieldSize(len(m))
		return err
	}); err != nil {
		return err
	}
	rs.stream(codec.EnvelopeSize(head, size), true, 0, func(l *listWriter) {
		l.buf = append(l.buf, head...)
		l.buf = binary.AppendUvarint(l.buf, uint64(size))
		l.buf = appendMessage(l.buf, 1, encoded)
		err := page.Each(rs.Ctx, func(it *cache.Item) error {
			m, err := message(it)
			if err != nil {
				return err
			}
			l.buf = appendMessage(l.buf, 2, m)
			l.flushIfFull()
			return l.err
		})
		if err != nil {
			l.err = err
			return
		}
		l.buf = codec.AppendEnvelopeEnd(l.buf)
	})
	return nil
}
