package registry

import (
	"bytes"

	"skiff/internal/apiserver/codec"
	"skiff/internal/cache"
	"skiff/internal/catalog"
	"skiff/internal/catalog/initializers"
)

// Initialization is what an object waits for before others see it: before a write, and after it. The Go types have no place for it.
type Initialization struct {
	Old, New *initializers.Initializers // nil: the object is initialized
}

// begin sets both to what the current version of an object has; nil is an object that does not exist.
func (i *Initialization) begin(current *cache.Item) {
	if i == nil {
		return
	}
	i.Old, i.New = nil, nil
	if current != nil && current.Uninitialized {
		i.Old = codec.InitializersOf(current)
		i.New = i.Old.DeepCopy()
	}
}

func (i *Initialization) after() *initializers.Initializers {
	if i == nil {
		return nil
	}
	return i.New
}

// uninitialized reports whether the object is not initialized before the write.
func (i *Initialization) uninitialized() bool { return i != nil && i.Old != nil }

// initializers returns what an object has after an update or a mark of deletion.
func (w Write) initializers(current *cache.Item) *initializers.Initializers {
	if w.Initialization != nil {
		return w.Initialization.New
	}
	return codec.InitializersOf(current)
}

// encode returns the value to store for an object, and its message.
func (r *Registry) encode(obj catalog.Object, in *initializers.Initializers) (value, message []byte, err error) {
	if in == nil {
		return r.Codec.Encode(obj)
	}
	return r.Codec.EncodeUninitialized(obj, in)
}

// sameMessage reports whether an object with initializers has the same stored message as an item.
func sameMessage(obj catalog.Object, in *initializers.Initializers, current *cache.Item) (bool, error) {
	suffix := in.Suffix()
	if obj.Size()+len(suffix) != len(current.Message()) {
		return false, nil
	}
	message, err := obj.Marshal()
	return bytes.Equal(append(message, suffix...), current.Message()), err
}
