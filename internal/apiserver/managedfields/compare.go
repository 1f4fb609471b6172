package managedfields

import (
	"bytes"
	"reflect"
	"slices"
)

// comparison holds the differences between an object and the live one: a tree of elements, some of which are marked as set or removed. Its
// rules are those of the library's typed.Compare.
type comparison struct {
	nodes        []node // the first is none, the second the root
	anySet       bool   // an element is marked as set
	needsLibrary bool   // found is a difference that only the library can classify

	path     []step
	elements []byte  // buffer of elements
	items    []item  // buffer to sort items of lists
	unsorted []int32 // nodes whose children are not sorted
	children []int32 // buffer to sort children
}

// node is an element of the tree. Nodes refer to each other by index.
type node struct {
	element           []byte
	first, last, next int32 // first child, last child, next sibling
	change            change
	unsorted          bool // the children are not sorted
}

type change int8

const (
	unchanged change = iota
	isSet            // added, or the value differs
	isRemoved
)

const (
	none int32 = iota
	root
)

// step is an element of the path that the comparison is at.
type step struct {
	element []byte
	node    int32 // none until the element is in the tree
}

// item is an item of a list.
type item struct {
	element []byte
	value   reflect.Value
}

// run compares two objects.
func (c *comparison) run(p *part, live, obj reflect.Value) {
	c.nodes = append(c.nodes[:0], node{}, node{})
	c.anySet, c.needsLibrary, c.path, c.elements, c.unsorted = false, false, c.path[:0], c.elements[:0], c.unsorted[:0]
	c.compareFields(p, live, obj)
	c.sort()
}

// mark marks the element that the comparison is at, and adds it to the tree.
func (c *comparison) mark(n change) {
	at := root
	for i := range c.path {
		s := &c.path[i]
		if s.node == none {
			s.node = c.insert(at, s.element)
		}
		at = s.node
	}
	c.nodes[at].change = n
	c.anySet = c.anySet || n == isSet
}

// insert adds an element after its siblings.
func (c *comparison) insert(parent int32, element []byte) int32 {
	n := int32(len(c.nodes))
	c.nodes = append(c.nodes, node{element: element})
	p := &c.nodes[parent]
	if p.first == none {
		p.first, p.last = n, n
		return n
	}
	if compareElements(c.nodes[p.last].element, element) > 0 && !p.unsorted { // keys of maps are in random order
		p.unsorted = true
		c.unsorted = append(c.unsorted, parent)
	}
	c.nodes[p.last].next, p.last = n, n
	return n
}

// sort sorts the children that were not inserted in order.
func (c *comparison) sort() {
	for _, parent := range c.unsorted {
		children := c.children[:0]
		for n := c.nodes[parent].first; n != none; n = c.nodes[n].next {
			children = append(children, n)
		}
		slices.SortFunc(children, func(x, y int32) int { return compareElements(c.nodes[x].element, c.nodes[y].element) })
		next := none
		for _, n := range slices.Backward(children) {
			c.nodes[n].next, next = next, n
		}
		c.nodes[parent].first, c.children = next, children
	}
}

// compareAt compares the values of both objects at an element. A missing value is invalid; null is a nil pointer, map or slice.
func (c *comparison) compareAt(element []byte, p *part, live, obj reflect.Value) {
	c.path = append(c.path, step{element: element})
	c.compare(p, live, obj)
	c.path = c.path[:len(c.path)-1]
}

func (c *comparison) compare(p *part, live, obj reflect.Value) {
	x, y, some := content(live), content(obj), false
	switch p.kind {
	case leaf:
		if live.IsValid() && obj.IsValid() && (same(live, obj) || c.equal(live, obj)) {
			return
		}
	case structure:
		some = c.compareFields(p, x, y)
	case mapping:
		some = c.compareMaps(p, x, y)
	case keyed, set:
		some = c.compareLists(p, x, y)
	case foreign:
		c.needsLibrary = c.needsLibrary || !live.IsValid() || !obj.IsValid() || !same(live, obj)
		return
	}
	switch {
	case !live.IsValid():
		c.mark(isSet)
	case !obj.IsValid():
		c.mark(isRemoved)
	case p.kind == leaf, x.IsValid() != y.IsValid() && !some: // a differing value; null instead of empty, or empty instead of null
		c.mark(isSet)
	}
}

// content returns what a value points to or holds, invalid if the value is missing or null.
func content(v reflect.Value) reflect.Value {
	switch v.Kind() {
	case reflect.Pointer:
		return v.Elem()
	case reflect.Map, reflect.Slice:
		if v.IsNil() {
			return reflect.Value{}
		}
	}
	return v
}

// compareFields compares two structs, of which one may be missing. If one is, it reports whether the other has any field.
func (c *comparison) compareFields(p *part, live, obj reflect.Value) (some bool) {
	for i := range p.fields {
		f := &p.fields[i]
		var x, y reflect.Value
		switch {
		case live.IsValid() && obj.IsValid():
			if x, y = f.of(live), f.of(obj); cheaplySame(x, y) {
				continue
			}
			x, y = f.unlessOmitted(x), f.unlessOmitted(y)
		case live.IsValid():
			x = f.unlessOmitted(f.of(live))
		case obj.IsValid():
			y = f.unlessOmitted(f.of(obj))
		}
		if x.IsValid() || y.IsValid() {
			some = true
			c.compareAt(f.element, f.part, x, y)
		}
	}
	return some
}

// unlessOmitted returns the value, invalid if JSON omits the field.
func (f *fieldPart) unlessOmitted(v reflect.Value) reflect.Value {
	if f.json.CanOmit(v) {
		return reflect.Value{}
	}
	return v
}

// compareMaps compares two maps, of which one may be missing. It reports whether they have any key.
func (c *comparison) compareMaps(p *part, live, obj reflect.Value) bool {
	if live.IsValid() && obj.IsValid() && live.UnsafePointer() == obj.UnsafePointer() {
		return live.Len() > 0
	}
	if t := reflect.TypeFor[map[string]string](); live.IsValid() && obj.IsValid() && live.Type() == t {
		return c.compareStrings(p, live.Interface().(map[string]string), obj.Interface().(map[string]string))
	}
	if live.IsValid() {
		for i := live.MapRange(); i.Next(); {
			var found reflect.Value
			if obj.IsValid() {
				found = obj.MapIndex(i.Key())
			}
			c.compareKey(p, i.Key().String(), i.Value(), found)
		}
	}
	if obj.IsValid() {
		for i := obj.MapRange(); i.Next(); {
			if !live.IsValid() || !live.MapIndex(i.Key()).IsValid() {
				c.compareKey(p, i.Key().String(), reflect.Value{}, i.Value())
			}
		}
	}
	return live.IsValid() && live.Len() > 0 || obj.IsValid() && obj.Len() > 0
}

// compareStrings is compareMaps for labels, annotations and most other maps.
func (c *comparison) compareStrings(p *part, live, obj map[string]string) bool {
	for k, x := range live {
		if y, found := obj[k]; !found {
			c.compareKey(p, k, reflect.ValueOf(x), reflect.Value{})
		} else if x != y {
			c.compareKey(p, k, reflect.ValueOf(x), reflect.ValueOf(y))
		}
	}
	for k, y := range obj {
		if _, found := live[k]; !found {
			c.compareKey(p, k, reflect.Value{}, reflect.ValueOf(y))
		}
	}
	return len(live) > 0 || len(obj) > 0
}

func (c *comparison) compareKey(p *part, key string, live, obj reflect.Value) {
	if live.IsValid() && obj.IsValid() && cheaplySame(live, obj) {
		return
	}
	if !allPlain(key) {
		c.needsLibrary = true
		return
	}
	start := len(c.elements)
	c.elements = append(append(c.elements, "f:"...), key...)
	c.compareAt(c.elements[start:len(c.elements):len(c.elements)], p.item, live, obj)
}

// whole is the part of an item of a set.
var whole = part{kind: leaf}

// compareLists compares two lists whose items are owned individually, of which one may be missing. It reports whether they have any item.
func (c *comparison) compareLists(p *part, live, obj reflect.Value) bool {
	if live.IsValid() && obj.IsValid() && same(live, obj) {
		return live.Len() > 0
	}
	start := len(c.items)
	c.sortItems(p, live)
	middle := len(c.items)
	c.sortItems(p, obj)
	end := len(c.items)
	for i, j := start, middle; i < middle || j < end; {
		order := 0
		switch {
		case i == middle:
			order = 1
		case j == end:
			order = -1
		default:
			order = bytes.Compare(c.items[i].element, c.items[j].element)
		}
		var x, y item
		if order <= 0 {
			x = c.items[i]
			y.element = x.element
			i++
		}
		if order >= 0 {
			y = c.items[j]
			j++
		}
		switch {
		case p.kind == keyed:
			c.compareAt(y.element, p.item, x.value, y.value)
		case order != 0:
			c.compareAt(y.element, &whole, x.value, y.value)
		}
	}
	clear(c.items[start:])
	c.items = c.items[:start]
	return end > start
}

// sortItems appends the items of a list, sorted by the bytes of their elements. Duplicate items are left to the library.
func (c *comparison) sortItems(p *part, list reflect.Value) {
	if !list.IsValid() {
		return
	}
	start := len(c.items)
	for i := range list.Len() {
		v, from := list.Index(i), len(c.elements)
		var b []byte
		if p.kind == keyed {
			b = p.appendKey(c.elements, v)
		} else {
			b = appendScalar(append(c.elements, "v:"...), v)
		}
		if b == nil {
			c.needsLibrary = true
			return
		}
		c.elements = b
		c.items = append(c.items, item{b[from:len(b):len(b)], v})
	}
	slices.SortFunc(c.items[start:], func(x, y item) int { return bytes.Compare(x.element, y.element) })
	for i := start + 1; i < len(c.items); i++ {
		c.needsLibrary = c.needsLibrary || bytes.Equal(c.items[i-1].element, c.items[i].element)
	}
}
