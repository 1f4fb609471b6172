package nonsense

import (
	"encoding/json"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// Mutator changes decoded JSON documents at random.
type Mutator struct {
	random *rand.Rand
	values []any
}

// New returns a mutator. It uses the values besides its own where it replaces or adds something.
func New(seed uint64, values ...any) *Mutator {
	return &Mutator{rand.New(rand.NewPCG(seed, 1)), append(slices.Clone(hostile), values...)}
}

// hostile are values that are hard for somebody.
var hostile = []any{nil, true, false, "", " ", "a", "A", "-", "a.b", "a/b", ".", ".a", ".a.b", "..", "\x00", "\n", "é", "\u202e", "\xff", "%s", "{}", "0", "-1", "1e9", "true", "null", "self", "v1",
	"https://127.0.0.1:0/", "int-or-string", "object", "array", "string", "integer", "number", "boolean", "date-time", "(a+)+$", "[", "^", "18446744073709551616", strings.Repeat("a", 300),
	int64(0), int64(1), int64(-1), int64(2), int64(math.MaxInt32) + 1, int64(math.MaxInt64), int64(math.MinInt64), 0.5, math.Copysign(0, -1), 1e300, 5e-324, 18446744073709551616.0,
	map[string]any{}, []any{}, []any{nil}, map[string]any{"": nil}, []any{map[string]any{}}, map[string]any{"type": "object"}}

const (
	maxNodes = 3000
	maxDepth = 60 // by which one change makes a document deeper
)

// JSON returns a JSON document with some changes.
func (m *Mutator) JSON(document string) []byte {
	var root any
	decoder := json.NewDecoder(strings.NewReader(document))
	decoder.UseNumber()
	if err := decoder.Decode(&root); err != nil {
		panic("the document of a test is no JSON: " + err.Error())
	}
	for range 1 + m.random.IntN(1+m.random.IntN(12)) { // few changes more often than many
		root = m.Change(root)
	}
	encoded, err := json.Marshal(root)
	if err != nil {
		panic("decoded JSON cannot be encoded: " + err.Error())
	}
	return encoded
}

// Change changes a decoded document in one place, and returns it.
func (m *Mutator) Change(root any) any {
	all := nodes(root)
	at := all[m.random.IntN(len(all))]
	value := m.changed(at.get(root), all, root)
	return at.set(root, value)
}

// changed returns another value in place of one.
func (m *Mutator) changed(value any, all []node, root any) any {
	if m.random.IntN(4) == 0 {
		return m.any(all, root)
	}
	switch v := value.(type) {
	case map[string]any:
		return m.changedMap(v, all, root)
	case []any:
		return m.changedList(v, all, root)
	case string:
		return m.changedText(v)
	}
	return m.wrapped(value)
}

// any returns a hostile value or a copy of another part of the document.
func (m *Mutator) any(all []node, root any) any {
	if m.random.IntN(2) == 0 && len(all) < maxNodes {
		return clone(all[m.random.IntN(len(all))].get(root))
	}
	return clone(m.values[m.random.IntN(len(m.values))])
}

func (m *Mutator) changedMap(v map[string]any, all []node, root any) any {
	names := slices.Sorted(maps.Keys(v))
	switch m.random.IntN(5) {
	case 0: // remove
		if len(names) > 0 {
			delete(v, names[m.random.IntN(len(names))])
		}
	case 1: // rename
		if len(names) > 0 {
			name := names[m.random.IntN(len(names))]
			value := v[name]
			delete(v, name)
			v[m.name(all, name)] = value
		}
	case 2, 3: // add
		v[m.name(all, "x")] = m.any(all, root)
	default:
		return m.wrapped(v)
	}
	return v
}

// name returns the name of a field: one that the document has elsewhere, mostly.
func (m *Mutator) name(all []node, other string) string {
	for range 20 {
		if at := all[m.random.IntN(len(all))]; len(at) > 0 {
			if name, ok := at[len(at)-1].(string); ok {
				return name
			}
		}
	}
	return m.changedText(other)
}

func (m *Mutator) changedList(v []any, all []node, root any) any {
	if len(v) == 0 {
		return append(v, m.any(all, root))
	}
	i := m.random.IntN(len(v))
	switch m.random.IntN(4) {
	case 0:
		return slices.Delete(v, i, i+1)
	case 1:
		return append(v, clone(v[i]))
	case 2:
		return append(v, m.any(all, root))
	}
	return m.wrapped(v)
}

func (m *Mutator) changedText(v string) string {
	at := m.random.IntN(len(v) + 1)
	switch m.random.IntN(5) {
	case 0:
		return v[:at]
	case 1:
		return v[at:] + v[:at]
	case 2:
		return strings.Repeat(v, 1+m.random.IntN(1+min(200, 4000/(len(v)+1))))
	case 3:
		return strings.ToUpper(v)
	}
	const characters = "a0.-_/:[](){}\"'\\*+^$ \n\x00é"
	i := m.random.IntN(len(characters))
	return v[:at] + characters[i:i+1] + v[at:]
}

// wrapped returns a value inside of others.
func (m *Mutator) wrapped(value any) any {
	depth := 1
	if m.random.IntN(8) == 0 {
		depth = 1 + m.random.IntN(maxDepth)
	}
	name := []string{"", "properties", "items", "not", "additionalProperties", "x", "spec"}[m.random.IntN(7)]
	for range depth {
		if name == "" {
			value = []any{value}
		} else {
			value = map[string]any{name: value}
		}
	}
	return value
}

// node is the path of a value in a document: names of fields and indexes.
type node []any

// nodes returns the paths of all values of a document, in order.
func nodes(root any) (all []node) {
	var visit func(at node, value any)
	visit = func(at node, value any) {
		all = append(all, slices.Clone(at))
		switch v := value.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				visit(append(at, name), v[name])
			}
		case []any:
			for i := range v {
				visit(append(at, i), v[i])
			}
		}
	}
	visit(nil, root)
	return all
}

func (n node) get(root any) any {
	for _, step := range n {
		switch s := step.(type) {
		case string:
			root = root.(map[string]any)[s]
		case int:
			root = root.([]any)[s]
		}
	}
	return root
}

// set replaces the value at the path, and returns the document.
func (n node) set(root, value any) any {
	if len(n) == 0 {
		return value
	}
	parent := n[:len(n)-1].get(root)
	switch s := n[len(n)-1].(type) {
	case string:
		parent.(map[string]any)[s] = value
	case int:
		parent.([]any)[s] = value
	}
	return root
}

func clone(value any) any {
	switch v := value.(type) {
	case map[string]any:
		copied := make(map[string]any, len(v))
		for name, child := range v {
			copied[name] = clone(child)
		}
		return copied
	case []any:
		copied := make([]any, len(v))
		for i := range v {
			copied[i] = clone(v[i])
		}
		return copied
	}
	return value
}
