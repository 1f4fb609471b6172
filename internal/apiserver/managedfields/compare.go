package managedfields

import (
	"bytes"
	"reflect"
	"slices"
)

// comparison is what an object has otherwise than the live one: a tree of elements, in which some are noted as set or removed. Its rules
// are those of the library's typed.Compare.
type comparison struct {
	nodes  []node // the first is none, the second the root
	set    bool   // something is set
	unsure bool   // there is something that only the library can tell

	path     []step
	elements []byte  // where elements are made
	items    []item  // where items of lists are sorted
	unsorted []int32 // nodes whose children are
	children []int32 // where children are sorted
}

// node is an element of the tree. Nodes refer to each other by place.
type node struct {
	element           []byte
	first, last, next int32 // child, child, sibling
	note              note
	unsorted          bool // its children
}

type note int8

const (
	nothing note = iota
	isSet        // added, or has another value
	isRemoved
)

const (
	none int32 = iota
	root
)

// step is where in the objects the comparison is.
type step struct {
	element []byte
	node    int32 // none as long as it is not in the tree
}

// item is an item of a list.
type item struct {
	element []byte
	value   reflect.Value
}

// run compares two objects.
func (c *comparison) run(p *part, live, obj reflect.Value) {
	c.nodes = append(c.nodes[:0], node{}, node{})
	c.set, c.unsure, c.path, c.elements, c.unsorted = false, false, c.path[:0], c.elements[:0], c.unsorted[:0]
	c.compareFields(p, live, obj)
	c.sort()
}

// note enters the element that the comparison has come to.
func (c *comparison) note(n note) {
	at := root
	for i := range c.path {
		s := &c.path[i]
		if s.node == none {
			s.node = c.insert(at, s.element)
		}
		at = s.node
	}
	c.nodes[at].note = n
	c.set = c.set || n == isSet
}

// insert adds an element behind its siblings.
func (c *comparison) insert(parent int32, element []byte) int32 {
	n := int32(len(c.nodes))
	c.nodes = append(c.nodes, node{element: element})
	p := &c.nodes[parent]
	if p.first == none {
		p.first, p.last = n, n
		return n
	}
	if compareElements(c.nodes[p.last].element, element) > 0 && !p.unsorted { // keys of maps come as they like
		p.unsorted = true
		c.unsorted = append(c.unsorted, parent)
	}
	c.nodes[p.last].next, p.last = n, n
	return n
}

// sort puts siblings that came otherwise in order.
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

// compareAt compares what both objects have at an element. A value that is not there is invalid; null is a nil pointer, map or slice.
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
		c.unsure = c.unsure || !live.IsValid() || !obj.IsValid() || !same(live, obj)
		return
	}
	switch {
	case !live.IsValid():
		c.note(isSet)
	case !obj.IsValid():
		c.note(isRemoved)
	case p.kind == leaf, x.IsValid() != y.IsValid() && !some: // another value; null instead of empty, or empty instead of null
		c.note(isSet)
	}
}

// content is what a value holds, invalid if it is not there or null.
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

// compareFields compares two structs, of which one may be missing. It reports whether one of two has any field at all, unless both are there.
func (c *comparison) compareFields(p *part, live, obj reflect.Value) (some bool) {
	for i := range p.fields {
		f := &p.fields[i]
		var x, y reflect.Value
		switch {
		case live.IsValid() && obj.IsValid():
			if x, y = f.of(live), f.of(obj); quicklySame(x, y) {
				continue
			}
			x, y = f.shown(x), f.shown(y)
		case live.IsValid():
			x = f.shown(f.of(live))
		case obj.IsValid():
			y = f.shown(f.of(obj))
		}
		if x.IsValid() || y.IsValid() {
			some = true
			c.compareAt(f.element, f.part, x, y)
		}
	}
	return some
}

// shown returns an invalid value for a field that JSON leaves out.
func (f *fieldPart) shown(v reflect.Value) reflect.Value {
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
			var there reflect.Value
			if obj.IsValid() {
				there = obj.MapIndex(i.Key())
			}
			c.compareKey(p, i.Key().String(), i.Value(), there)
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
		if y, there := obj[k]; !there {
			c.compareKey(p, k, reflect.ValueOf(x), reflect.Value{})
		} else if x != y {
			c.compareKey(p, k, reflect.ValueOf(x), reflect.ValueOf(y))
		}
	}
	for k, y := range obj {
		if _, there := live[k]; !there {
			c.compareKey(p, k, reflect.Value{}, reflect.ValueOf(y))
		}
	}
	return len(live) > 0 || len(obj) > 0
}

func (c *comparison) compareKey(p *part, key string, live, obj reflect.Value) {
	if live.IsValid() && obj.IsValid() && quicklySame(live, obj) {
		return
	}
	if !allPlain(key) {
		c.unsure = true
		return
	}
	start := len(c.elements)
	c.elements = append(append(c.elements, "f:"...), key...)
	c.compareAt(c.elements[start:len(c.elements):len(c.elements)], p.item, live, obj)
}

// whole is the part that an item of a set is.
var whole = part{kind: leaf}

// compareLists compares two lists whose items are owned one by one, of which one may be missing. It reports whether they have any item.
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

// sortItems appends the items of a list, in the order of the bytes of their elements. Items that cannot be told apart are left to the library.
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
			c.unsure = true
			return
		}
		c.elements = b
		c.items = append(c.items, item{b[from:len(b):len(b)], v})
	}
	slices.SortFunc(c.items[start:], func(x, y item) int { return bytes.Compare(x.element, y.element) })
	for i := start + 1; i < len(c.items); i++ {
		c.unsure = c.unsure || bytes.Equal(c.items[i-1].element, c.items[i].element)
	}
}
