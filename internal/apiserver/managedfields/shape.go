package managedfields

import (
	"encoding/binary"
	"reflect"
	"sort"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/schema"

	"skiff/internal/apiserver/managedfields/mergeschema"
	"skiff/internal/catalog"
)

// The managed fields of a new object depend on its shape alone: which fields are set, which keys its maps and keyed lists have, not on
// the values. Many objects have the same shape (the pods of a ReplicaSet, the leases of nodes), so what the library works out for one
// is kept for all.

// shaper writes down the shape of objects of one kind.
type shaper struct {
	kind reflect.Type
	root *part
}

// part says what of a Go value belongs to its shape.
type part struct {
	kind   partKind
	fields []fieldPart // of a structure
	item   *part       // of a list, map or pointer
	keys   []int       // of a keyed list: which fields of its items are the key
}

type partKind int

const (
	leaf      partKind = iota // set or not
	structure                 // its fields
	pointer                   // nil or not, and what it points to
	mapping                   // keys and their items
	keyed                     // a list of structures: key fields and items
	set                       // a list of values that all count
)

type fieldPart struct {
	index int
	part  *part
}

func newShaper(info *catalog.Info) *shaper {
	t, ok := mergeschema.Type(info.GVK)
	if !ok {
		return nil
	}
	kind := reflect.TypeOf(info.New()).Elem()
	b := &shapeBuilder{schema: mergeschema.Schema(), made: map[shapeKey]*part{}}
	return &shaper{kind: kind, root: b.build(kind, t.TypeRef)}
}

type shapeKey struct {
	t    reflect.Type
	name string
}

type shapeBuilder struct {
	schema *schema.Schema
	made   map[shapeKey]*part // by type, as types may contain themselves
}

func (b *shapeBuilder) build(t reflect.Type, ref schema.TypeRef) *part {
	if t.Kind() == reflect.Pointer {
		return &part{kind: pointer, item: b.build(t.Elem(), ref)}
	}
	atom, ok := b.schema.Resolve(ref)
	if !ok {
		return &part{kind: leaf}
	}
	if ref.NamedType != nil {
		key := shapeKey{t, *ref.NamedType}
		if p := b.made[key]; p != nil {
			return p
		}
		p := &part{}
		b.made[key] = p
		*p = *b.buildAtom(t, atom)
		return p
	}
	return b.buildAtom(t, atom)
}

func (b *shapeBuilder) buildAtom(t reflect.Type, atom schema.Atom) *part {
	switch {
	case atom.Map != nil && atom.Map.ElementRelationship != schema.Atomic && t.Kind() == reflect.Struct:
		return b.buildStruct(t, atom.Map)
	case atom.Map != nil && atom.Map.ElementRelationship != schema.Atomic && t.Kind() == reflect.Map && t.Key().Kind() == reflect.String:
		return &part{kind: mapping, item: b.build(t.Elem(), atom.Map.ElementType)}
	case atom.List != nil && atom.List.ElementRelationship == schema.Associative && t.Kind() == reflect.Slice:
		if len(atom.List.Keys) == 0 {
			return &part{kind: set}
		}
		return b.buildKeyed(t, atom.List)
	}
	return &part{kind: leaf}
}

func (b *shapeBuilder) buildStruct(t reflect.Type, m *schema.Map) *part {
	p := &part{kind: structure}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || f.Type == reflect.TypeFor[metav1.TypeMeta]():
		case name == "" && f.Anonymous:
			p.fields = append(p.fields, fieldPart{i, b.buildStruct(f.Type, m)})
		case f.Name == "ManagedFields":
		default:
			inner := &part{kind: leaf}
			if sf, ok := m.FindField(name); ok {
				inner = b.build(f.Type, sf.Type)
			}
			p.fields = append(p.fields, fieldPart{i, inner})
		}
	}
	return p
}

func (b *shapeBuilder) buildKeyed(t reflect.Type, l *schema.List) *part {
	p := &part{kind: keyed, item: b.build(t.Elem(), l.ElementType)}
	for _, key := range l.Keys {
		found := false
		for i := range t.Elem().NumField() {
			if name, _, _ := strings.Cut(t.Elem().Field(i).Tag.Get("json"), ","); name == key {
				p.keys, found = append(p.keys, i), true
			}
		}
		if !found {
			return &part{kind: set} // every value counts
		}
	}
	return p
}

// shape appends an object's shape. It returns false if the object cannot be written down, which no built-in type causes.
func (s *shaper) shape(b []byte, obj catalog.Object) ([]byte, bool) {
	v := reflect.ValueOf(obj).Elem()
	if s == nil || v.Type() != s.kind {
		return nil, false
	}
	return s.root.append(b, v)
}

func (p *part) append(b []byte, v reflect.Value) (_ []byte, ok bool) {
	switch p.kind {
	case leaf:
		if v.Kind() == reflect.Struct {
			set, clear := substance(v)
			if !clear {
				return nil, false
			}
			if set {
				return append(b, 1), true
			}
			return append(b, 0), true
		}
		return append(b, presence(v)), true
	case pointer:
		if v.IsNil() {
			return append(b, 0), true
		}
		return p.item.append(append(b, 1), v.Elem())
	case structure:
		for _, f := range p.fields {
			if b, ok = f.part.append(b, v.Field(f.index)); !ok {
				return nil, false
			}
		}
		return b, true
	case mapping:
		return p.appendMap(append(b, presence(v)), v)
	case keyed:
		b = append(b, presence(v))
		b = binary.AppendUvarint(b, uint64(v.Len()))
		for i := range v.Len() {
			item := v.Index(i)
			for _, k := range p.keys {
				if b, ok = appendValue(b, item.Field(k)); !ok {
					return nil, false
				}
			}
			if b, ok = p.item.append(b, item); !ok {
				return nil, false
			}
		}
		return b, true
	default: // set
		b = append(b, presence(v))
		b = binary.AppendUvarint(b, uint64(v.Len()))
		for i := range v.Len() {
			if b, ok = appendValue(b, v.Index(i)); !ok {
				return nil, false
			}
		}
		return b, true
	}
}

func (p *part) appendMap(b []byte, v reflect.Value) (_ []byte, ok bool) {
	b = binary.AppendUvarint(b, uint64(v.Len()))
	if v.Len() == 0 {
		return b, true
	}
	keys := make([]string, 0, v.Len())
	for _, k := range v.MapKeys() {
		keys = append(keys, k.String())
	}
	sort.Strings(keys)
	for _, k := range keys {
		b = appendString(b, k)
		if b, ok = p.item.append(b, v.MapIndex(reflect.ValueOf(k).Convert(v.Type().Key()))); !ok {
			return nil, false
		}
	}
	return b, true
}

// presence tells absent, empty and present values apart.
func presence(v reflect.Value) byte {
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		switch {
		case v.IsNil():
			return 0
		case v.Len() == 0:
			return 2
		}
		return 1
	}
	if v.IsZero() {
		return 0
	}
	return 1
}

// substance tells whether a structure that is set as a whole says anything. It is not clear for one that holds nothing but empty lists
// and maps: whether that is the same as nothing depends on how each of them is written.
func substance(v reflect.Value) (set, clear bool) {
	clear = true
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Slice, reflect.Map:
			if f.Len() > 0 {
				return true, true
			}
			clear = clear && f.IsNil()
		case reflect.Struct:
			inner, sure := substance(f)
			if inner {
				return true, true
			}
			clear = clear && sure
		default:
			if !f.IsZero() {
				return true, true
			}
		}
	}
	return false, clear
}

// appendValue writes down a value that counts itself: a key, or a member of a set.
func appendValue(b []byte, v reflect.Value) ([]byte, bool) {
	switch v.Kind() {
	case reflect.String:
		return appendString(b, v.String()), true
	case reflect.Int, reflect.Int32, reflect.Int64:
		return binary.AppendVarint(b, v.Int()), true
	case reflect.Bool:
		if v.Bool() {
			return append(b, 1), true
		}
		return append(b, 0), true
	case reflect.Pointer:
		if v.IsNil() {
			return append(b, 0), true
		}
		return appendValue(append(b, 1), v.Elem())
	}
	return nil, false
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// shapes remembers the fields of shapes seen.
type shapes struct {
	mu    sync.RWMutex
	known map[string]*metav1.FieldsV1 // nil: no fields at all
}

// maxShapes bounds how many shapes of one kind are remembered.
const maxShapes = 1024

var shapeBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

func (s *shapes) find(shape []byte) (*metav1.FieldsV1, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	f, ok := s.known[string(shape)]
	return f, ok
}

func (s *shapes) keep(shape []byte, f *metav1.FieldsV1) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= maxShapes {
		s.known = map[string]*metav1.FieldsV1{}
	}
	s.known[string(shape)] = f
}
