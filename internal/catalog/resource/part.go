package resource

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

// part is a part of an object for which upstream has both handwritten rules and rules declared on the types.
// Errors of declared rules are reported after all others.
type part struct {
	*check.Part
	declared *check.Part
}

func at(path *field.Path) part { return part{check.At(path), check.At(path)} }

func (p part) child(name string) part {
	return part{p.Part.Child(name), p.declared.Child(name)}
}

func (p part) item(list string, i int) part {
	return part{p.Part.Item(list, i), p.declared.Item(list, i)}
}

// onlyDeclared returns the same part, of which only errors of declared rules are reported.
func (p part) onlyDeclared() part { return part{check.At(p.Path()), p.declared} }

func (p part) errors() field.ErrorList { return append(p.Errors(), p.declared.Errors()...) }

// tooMany refuses a list that is too long, and reports whether it did: its items are not validated then.
func tooMany[T any](p *check.Part, name string, list []T, limit int) bool {
	if len(list) <= limit {
		return false
	}
	p.Add(field.TooMany(p.Path(name), len(list), limit))
	return true
}

// list checks a list whose length is limited by declaration, and each item.
func list[T any](p part, name string, items []T, limit int, item func(part, *T)) {
	if tooMany(p.declared, name, items, limit) {
		return
	}
	for i := range items {
		item(p.item(name, i), &items[i])
	}
}

// set checks a list whose items are distinct by declaration, and each item.
func set[T any, K comparable](p part, name string, items []T, limit int, key func(*T) K, item func(part, *T)) {
	if len(items) <= limit {
		duplicates(p.declared, name, items, key, func(i *T) any { return *i })
	}
	list(p, name, items, limit, item)
}

// duplicates refuses items with the key of an earlier one; shown returns what errors show of an item.
func duplicates[T any, K comparable](p *check.Part, name string, items []T, key func(*T) K, shown func(*T) any) {
	if len(items) < 2 {
		return
	}
	seen := make(map[K]struct{}, len(items))
	for i := range items {
		k := key(&items[i])
		if _, again := seen[k]; again {
			p.Add(field.Duplicate(p.Path(name).Index(i), shown(&items[i])))
		}
		seen[k] = struct{}{}
	}
}

func itself(s *string) string { return *s }

func sortedKeys[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
