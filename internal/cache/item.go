package cache

import (
	"bytes"
	"strconv"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
)

// Item is one version of one object. It is immutable except for the derived forms that are attached to it.
type Item struct {
	Key             string // the store's key without the kind's prefix: "namespace/name", or "name"
	Namespace, Name string
	UID             string
	Revision        int64
	Labels          map[string]string
	Fields          []string // values of the kind's selectable fields, in its order

	raw    []byte // the bare protobuf message, then the spliced resourceVersion
	suffix int32  // length of the splice
	// Uninitialized is set for an object that still waits for its initializers: only readers that ask for such objects get it. It is set before the item
	// is used.
	Uninitialized bool
	object        atomic.Pointer[runtime.Object]
	forms         [formCount]atomic.Pointer[[]byte]
	kept          atomic.Pointer[any]
	normal        atomic.Pointer[normalized] // nil until somebody asked, and for kinds whose schema never changes
	// conversions are the item in other versions of its kind, the newest first; nil until somebody asked, and for kinds that are not converted.
	conversions atomic.Pointer[[]normalized]
}

// normalized is an item as one schema of its kind has it.
type normalized struct {
	epoch uint64 // of the schema
	item  *Item  // nil if it is the item itself
}

// Normalized returns the item as the schema of an epoch has it; nil if that is not known yet.
func (it *Item) Normalized(epoch uint64) *Item {
	switch n := it.normal.Load(); {
	case n == nil || n.epoch != epoch:
	case n.item == nil:
		return it
	default:
		return n.item
	}
	if all := it.conversions.Load(); all != nil {
		for _, n := range *all {
			if n.epoch == epoch {
				return n.item
			}
		}
	}
	return nil
}

// SetNormalized keeps the message that the schema of an epoch makes of the item's, and returns the item that has it. That is the item itself if
// the messages are equal.
func (it *Item) SetNormalized(epoch uint64, message []byte) *Item {
	if bytes.Equal(message, it.Message()) {
		it.normal.Store(&normalized{epoch: epoch})
		return it
	}
	other := it.with(message)
	other.normal.Store(&normalized{epoch: epoch})
	it.normal.Store(&normalized{epoch, other})
	return other
}

// SetConverted keeps what the schema of an epoch makes of the item in another version of its kind, and returns it; another if that was there before.
// At most that many conversions are kept, the latest.
func (it *Item) SetConverted(epoch uint64, converted *Item, most int) *Item {
	converted.normal.Store(&normalized{epoch: epoch})
	for {
		old := it.conversions.Load()
		all := []normalized{{epoch, converted}}
		if old != nil {
			for _, n := range *old {
				if n.epoch == epoch {
					return n.item
				}
			}
			all = append(all, (*old)[:min(len(*old), most-1)]...)
		}
		if it.conversions.CompareAndSwap(old, &all) {
			return converted
		}
	}
}

// Form is a derived encoding of an item that is worth keeping while it is hot.
type Form int

const (
	JSON Form = iota // the object as JSON without kind and apiVersion
	formCount
	keptForm = formCount // the value that Keep attaches
)

// Message returns the object as a bare protobuf message without a resourceVersion, as it is stored.
func (it *Item) Message() []byte { return it.raw[:len(it.raw)-int(it.suffix)] }

// Raw returns the object as a bare protobuf message, resourceVersion included.
func (it *Item) Raw() []byte { return it.raw }

// NewItem makes an item of a stored object. message is its bare protobuf message without a resourceVersion; it is copied.
func NewItem(message []byte, revision int64) *Item {
	it := &Item{Revision: revision}
	if revision == 0 { // a dry run, which is not stored
		it.raw = message
		return it
	}
	it.raw = appendResourceVersion(message, revision)
	it.suffix = int32(len(it.raw) - len(message))
	return it
}

// At returns a copy of the item that carries another revision: the last state of an object, at its deletion.
func (it *Item) At(revision int64) *Item { return it.copyTo(NewItem(it.Message(), revision)) }

// with returns a copy of the item with another message.
func (it *Item) with(message []byte) *Item { return it.copyTo(NewItem(message, it.Revision)) }

func (it *Item) copyTo(c *Item) *Item {
	c.Key, c.Namespace, c.Name, c.UID, c.Labels, c.Fields, c.Uninitialized = it.Key, it.Namespace, it.Name, it.UID, it.Labels, it.Fields, it.Uninitialized
	return c
}

// appendResourceVersion splices metadata.resourceVersion into an encoded object. Every Kubernetes object has its metadata
// as field 1, ObjectMeta has resourceVersion as field 6, and protobuf merges a message field that occurs twice: so a second
// metadata with nothing but the resourceVersion, appended at the end, is enough.
func appendResourceVersion(message []byte, revision int64) []byte {
	var digits [20]byte
	version := strconv.AppendInt(digits[:0], revision, 10)
	const metadataField, resourceVersionField, lengthDelimited = 1, 6, 2
	spliced := make([]byte, 0, len(message)+4+len(version))
	spliced = append(spliced, message...)
	spliced = append(spliced,
		metadataField<<3|lengthDelimited, byte(len(version)+2),
		resourceVersionField<<3|lengthDelimited, byte(len(version)))
	return append(spliced, version...)
}

// KeptForm returns a derived encoding if it is kept, else nil.
func (it *Item) KeptForm(f Form) []byte {
	if p := it.forms[f].Load(); p != nil {
		return *p
	}
	return nil
}

// Form returns a derived encoding, making it if it is not kept. Concurrent callers may both make it; the results are equal.
func (it *Item) Form(f Form, keep *Hot, make func() []byte) []byte {
	if p := it.forms[f].Load(); p != nil {
		return *p
	}
	b := make()
	if keep != nil {
		keep.admit(it, f, len(b), func() { it.forms[f].Store(&b) })
	}
	return b
}

// Kept returns the value last given to Keep, or nil if it was dropped.
func (it *Item) Kept() any {
	if p := it.kept.Load(); p != nil {
		return *p
	}
	return nil
}

// Keep attaches a value derived from the item, of about the given size, until hot drops it. It does nothing if hot is nil.
func (it *Item) Keep(hot *Hot, v any, size int) {
	if hot == nil {
		return
	}
	hot.admit(it, keptForm, size, func() { it.kept.Store(&v) })
}

func (it *Item) drop(f Form) {
	if f == keptForm {
		it.kept.Store(nil)
	} else {
		it.forms[f].Store(nil)
	}
}
