package schema

import "k8s.io/apimachinery/pkg/runtime"

// Default sets the schema's defaults where a field is missing, or null and not nullable.
func (s *Schema) Default(obj map[string]any) error {
	c, err := s.compiled()
	if err != nil {
		return err
	}
	setDefaults(obj, c.shape)
	return nil
}

func setDefaults(value any, n *shape) {
	if n == nil || !n.hasDefaults {
		return
	}
	switch value := value.(type) {
	case map[string]any:
		for _, property := range n.defaulted {
			if old, found := value[property.name]; !found || old == nil && !property.nullable {
				value[property.name] = runtime.DeepCopyJSONValue(property.def)
			}
		}
		for name, child := range value {
			schema := n.child(name)
			if child == nil && schema != nil && !schema.nullable && schema.def != nil {
				child = runtime.DeepCopyJSONValue(schema.def)
				value[name] = child
			}
			setDefaults(child, schema)
		}
	case []any:
		for i, child := range value {
			if child == nil && n.items != nil && !n.items.nullable && n.items.def != nil {
				child = runtime.DeepCopyJSONValue(n.items.def)
				value[i] = child
			}
			setDefaults(child, n.items)
		}
	}
}
