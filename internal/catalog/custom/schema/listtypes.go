package schema

// uniqueListLimit is the length up to which the elements of a list are compared with each other. Longer lists are left to upstream's
// validation, which builds a map.
const uniqueListLimit = 32

// uniqueLists says whether the lists of type set and map in a value surely have unique elements.
func uniqueLists(value any, n *shape) bool {
	if n == nil || !n.hasListTypes {
		return true
	}
	switch value := value.(type) {
	case map[string]any:
		for name, child := range value {
			if n.hasAdditional && n.properties != nil {
				return false // upstream walks both; definitions have one
			}
			if !uniqueLists(child, n.child(name)) {
				return false
			}
		}
	case []any:
		if !n.unique(value) {
			return false
		}
		for _, child := range value {
			if !uniqueLists(child, n.items) {
				return false
			}
		}
	}
	return true
}

func (n *shape) unique(values []any) bool {
	switch n.listType {
	case "set":
		return len(values) <= 1 || len(values) <= uniqueListLimit && uniqueScalars(values)
	case "map":
		return len(values) <= uniqueListLimit && n.uniqueKeys(values)
	}
	return true
}

func uniqueScalars(values []any) bool {
	for i, value := range values {
		if !isScalar(value) {
			return false
		}
		for _, other := range values[:i] {
			if value == other {
				return false
			}
		}
	}
	return true
}

// uniqueKeys says whether no two elements have the same values under all keys. All must be maps; a missing key equals a missing key only.
func (n *shape) uniqueKeys(values []any) bool {
	for i, value := range values {
		element, ok := value.(map[string]any)
		if !ok {
			return false
		}
		for _, key := range n.mapKeys {
			v, ok := element[key]
			if _, float := v.(float64); float || ok && !isScalar(v) {
				return false // 1.0 and 1 are the same key, but only if there are several keys
			}
		}
		for _, other := range values[:i] {
			if n.sameKeys(element, other.(map[string]any)) {
				return false
			}
		}
	}
	return true
}

func (n *shape) sameKeys(a, b map[string]any) bool {
	for _, key := range n.mapKeys {
		x, inA := a[key]
		y, inB := b[key]
		if inA != inB || x != y {
			return false
		}
	}
	return true
}

func isScalar(value any) bool {
	switch value.(type) {
	case string, bool, int64, float64:
		return true
	}
	return false
}
