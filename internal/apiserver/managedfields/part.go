package managedfields

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"skiff/internal/apiserver/managedfields/mergeschema"
	"skiff/internal/catalog"
)

// part describes how values of one Go type are owned, by the merge schema: as a whole, by field, or by item.
type part struct {
	kind    partKind
	fields  []fieldPart // of a structure, sorted by name
	item    *part       // of a mapping or keyed list
	keys    []keyPart   // of a keyed list, sorted by name
	keyless bool        // a keyed list whose items may lack every key
}

type partKind int

const (
	leaf      partKind = iota // owned as a whole
	structure                 // a Go struct, owned by field
	mapping                   // a Go map, owned by key
	keyed                     // a list of structs, owned by item; some of their fields are keys
	set                       // a list of strings or numbers, owned by item
	foreign                   // owned by parts that are not visible in its Go type
)

// fieldPart is a field of a structure.
type fieldPart struct {
	element []byte // the element of the field's name
	index   []int
	json    *value.FieldCacheEntry // decides whether JSON omits the field
	part    *part
}

// of returns the field of a struct.
func (f *fieldPart) of(v reflect.Value) reflect.Value {
	if len(f.index) == 1 {
		return v.Field(f.index[0])
	}
	return v.FieldByIndex(f.index)
}

// keyPart is a key of a keyed list.
type keyPart struct {
	name    string
	field   fieldPart
	initial reflect.Value // the default of an omitted key; invalid if there is none
}

// kind describes the objects of one resource, as written through one endpoint.
type kind struct {
	object  reflect.Type
	all     *part // everything that can be in managed fields
	written *part // everything that a write through this endpoint can change
}

// newKind returns nil for kinds that only the library can handle. reset are the fields that the endpoint ignores.
func newKind(info *catalog.Info, reset []string) *kind {
	t, ok := mergeschema.Type(info.GVK)
	if !ok {
		return nil
	}
	parts.mu.Lock()
	defer parts.mu.Unlock()
	object := reflect.TypeOf(info.New()).Elem()
	k := &kind{object: object, all: parts.build(object, t.TypeRef, unowned()), written: parts.build(object, t.TypeRef, unowned(reset...))}
	// The library fails on an item without any key, anywhere in the object. Few kinds can have one.
	if k.all.kind != structure || k.all.any(map[*part]bool{}, func(p *part) bool { return p.keyless }) {
		return nil
	}
	return k
}

func (p *part) any(seen map[*part]bool, is func(*part) bool) bool {
	if p == nil || seen[p] {
		return false
	}
	seen[p] = true
	return is(p) || p.item.any(seen, is) || slices.ContainsFunc(p.fields, func(f fieldPart) bool { return f.part.any(seen, is) })
}

// exclusions are fields to leave out. The inner exclusions are the parts of a field to leave out; nil means the whole field.
type exclusions map[string]exclusions

// unowned returns the fields that no manager can own, and more, given as dotted paths.
func unowned(more ...string) exclusions {
	c := exclusions{"apiVersion": nil, "kind": nil, "metadata": exclusions{"name": nil, "namespace": nil, "creationTimestamp": nil, "selfLink": nil, "uid": nil,
		"generation": nil, "managedFields": nil, "resourceVersion": nil}}
	for _, path := range more {
		c.add(strings.Split(path, "."))
	}
	return c
}

func (c exclusions) add(path []string) {
	inner, known := c[path[0]]
	switch {
	case known && inner == nil:
	case len(path) == 1:
		c[path[0]] = nil
	default:
		if inner == nil {
			inner = exclusions{}
			c[path[0]] = inner
		}
		inner.add(path[1:])
	}
}

// parts are built once per type and shared by all kinds, which have many types in common, pod templates above all. Their number is bounded by
// that of the types in the schema.
var parts = partBuilder{built: map[partKey]*part{}}

type partBuilder struct {
	mu    sync.Mutex
	built map[partKey]*part
}

type partKey struct {
	t        reflect.Type
	name     string
	relation schema.ElementRelationship // overrides that of the named type
}

func (b *partBuilder) build(t reflect.Type, ref schema.TypeRef, without exclusions) *part {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	atom, ok := mergeschema.Schema().Resolve(ref)
	if !ok {
		return &part{kind: foreign}
	}
	if ref.NamedType == nil || len(without) > 0 {
		return b.buildAtom(t, atom, without)
	}
	key := partKey{t: t, name: *ref.NamedType}
	if ref.ElementRelationship != nil {
		key.relation = *ref.ElementRelationship
	}
	if p := b.built[key]; p != nil {
		return p
	}
	p := &part{}
	b.built[key] = p // before it is complete, as types can be recursive
	*p = *b.buildAtom(t, atom, nil)
	return p
}

func (b *partBuilder) buildAtom(t reflect.Type, atom schema.Atom, without exclusions) *part {
	byField := atom.Map != nil && atom.Map.ElementRelationship != schema.Atomic
	byItem := atom.List != nil && atom.List.ElementRelationship == schema.Associative
	switch {
	case t == reflect.TypeFor[intstr.IntOrString](): // a number or a string, whatever the schema allows
		return &part{kind: leaf}
	case value.TypeReflectEntryOf(t).CanConvertToUnstructured():
		if byField || byItem {
			return &part{kind: foreign}
		}
		return &part{kind: leaf}
	case t.Kind() == reflect.Struct && byField:
		return &part{kind: structure, fields: b.buildFields(t, nil, atom.Map, without)}
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String && byField:
		return &part{kind: mapping, item: b.build(t.Elem(), atom.Map.ElementType, nil)}
	case t.Kind() == reflect.Slice && byItem && len(atom.List.Keys) > 0:
		return b.buildKeyed(t.Elem(), atom.List)
	case t.Kind() == reflect.Slice && byItem:
		return &part{kind: set}
	case byField && atom.Scalar == nil || byItem:
		return &part{kind: foreign}
	}
	return &part{kind: leaf}
}

func (b *partBuilder) buildFields(t reflect.Type, outer []int, m *schema.Map, without exclusions) []fieldPart {
	var fields []fieldPart
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		index := append(slices.Clone(outer), i)
		inner, excluded := without[name]
		switch {
		case name == "-" || excluded && inner == nil:
		case name == "" && f.Anonymous:
			fields = append(fields, b.buildFields(f.Type, index, m, without)...)
		default:
			p := &part{kind: foreign}
			if sf, ok := m.FindField(name); ok {
				p = b.build(f.Type, sf.Type, inner)
			}
			fields = append(fields, fieldPart{element: []byte("f:" + name), index: index, json: value.TypeReflectEntryOf(t).Fields()[name], part: p})
		}
	}
	slices.SortFunc(fields, func(x, y fieldPart) int { return compareElements(x.element, y.element) })
	return fields
}

func (b *partBuilder) buildKeyed(item reflect.Type, list *schema.List) *part {
	p := &part{kind: keyed, item: b.build(item, list.ElementType, nil), keyless: true}
	atom, ok := mergeschema.Schema().Resolve(list.ElementType)
	if !ok || atom.Map == nil || item.Kind() != reflect.Struct {
		return &part{kind: foreign}
	}
	for _, f := range b.buildFields(item, nil, atom.Map, nil) {
		name := string(f.element[len("f:"):])
		if !slices.Contains(list.Keys, name) {
			continue
		}
		key := keyPart{name: name, field: f}
		if sf, _ := atom.Map.FindField(name); sf.Default != nil {
			key.initial = reflect.ValueOf(sf.Default)
		}
		if key.initial.IsValid() || !f.json.CanOmit(f.of(reflect.Zero(item))) {
			p.keyless = false
		}
		p.keys = append(p.keys, key)
	}
	if len(p.keys) != len(list.Keys) {
		return &part{kind: foreign}
	}
	return p
}
