package managedfields

import (
	"encoding/json"
	"slices"
	"testing"

	"skiff/internal/catalog"
)

// edit returns an object with a few random changes: values, fields and items that are changed, added, removed, moved or duplicated.
func (h *history) edit(t *testing.T, info *catalog.Info, live catalog.Object) catalog.Object {
	t.Helper()
	obj := live
	for range h.IntN(4) {
		var full, now any
		if err := json.Unmarshal(h.data, &full); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(text(t, obj)), &now); err != nil {
			t.Fatal(err)
		}
		delete(now.(map[string]any)["metadata"].(map[string]any), "managedFields")
		b, err := json.Marshal(h.change(full, now))
		if err != nil {
			t.Fatal(err)
		}
		changed := info.New().(catalog.Object)
		if json.Unmarshal(b, changed) != nil {
			continue // the change does not fit the type
		}
		changed.SetManagedFields(live.GetManagedFields())
		obj = changed
	}
	return stored(t, h.Rand, info, obj)
}

// change makes one change somewhere in a value; full is what it may have.
func (h *history) change(full, v any) any {
	switch v := v.(type) {
	case map[string]any:
		all, _ := full.(map[string]any)
		switch h.IntN(10) {
		case 0:
			if k, ok := h.key(v); ok {
				delete(v, k)
			}
		case 1, 2:
			if k, ok := h.key(all); ok {
				v[k] = prune(h.Rand, all[k], 0.8)
			}
		case 3:
			v[[]string{"a", "b", "example.com/c", "app", "a\"b", "\u00fc", "a<b", "a\\"}[h.IntN(8)]] = []any{"x", "y", "", nil}[h.IntN(4)]
		case 4:
			if k, ok := h.key(v); ok && h.IntN(2) == 0 {
				v[k] = []any{nil, map[string]any{}, []any{}, "", 0, "\u00fc<\""}[h.IntN(6)]
			}
		default:
			if k, ok := h.key(v); ok {
				v[k] = h.change(all[k], v[k])
			}
		}
		return v
	case []any:
		return h.changeList(full, v)
	case bool:
		return !v
	case float64:
		return v + float64(h.IntN(3)) - 1
	case string:
		return []string{"", v + "x", "x", "TCP", "2m", "1000m", "1", "2020-01-01T00:00:00Z", v}[h.IntN(9)]
	}
	return full
}

func (h *history) changeList(full any, v []any) any {
	all, _ := full.([]any)
	add := func() any {
		if len(all) == 0 {
			return []any{"a", "b", "c"}[h.IntN(3)]
		}
		added := prune(h.Rand, clone(all[h.IntN(len(all))]), 0.9)
		if m, ok := added.(map[string]any); ok && h.IntN(3) > 0 { // another item
			if k, ok := h.key(m); ok {
				m[k] = h.change(nil, m[k])
			}
		}
		if s, ok := added.(string); ok {
			return s + []string{"", "a", "b", "c"}[h.IntN(4)]
		}
		return added
	}
	if len(v) == 0 {
		return append(v, add())
	}
	i := h.IntN(len(v))
	switch h.IntN(8) {
	case 0:
		return slices.Delete(v, i, i+1)
	case 1, 2:
		return slices.Insert(v, i, add())
	case 3:
		h.Shuffle(len(v), func(i, j int) { v[i], v[j] = v[j], v[i] })
		return v
	case 4:
		if h.IntN(4) == 0 {
			return append(v, clone(v[i]))
		}
		return v[:0]
	}
	inner := any(nil)
	if len(all) > 0 {
		inner = all[0]
	}
	v[i] = h.change(inner, v[i])
	return v
}

func (h *history) key(m map[string]any) (string, bool) {
	keys := make([]string, 0, len(m))
	for k := range m {
		if k != "apiVersion" && k != "kind" && k != "managedFields" {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return "", false
	}
	slices.Sort(keys)
	return keys[h.IntN(len(keys))], true
}

func clone(v any) any {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	var out any
	if err := json.Unmarshal(b, &out); err != nil {
		panic(err)
	}
	return out
}
