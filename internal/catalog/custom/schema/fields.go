package schema

import (
	"fmt"
	"strings"
)

// SelectableField is a field that a version's objects can be selected by, besides metadata.name and metadata.namespace.
type SelectableField struct {
	Name string // such as "spec.host"

	path *path
	err  error // why the path cannot be parsed
}

// fields are the selectable fields of a version.
type fields struct {
	list []SelectableField
}

// SelectableFields returns the selectable fields in the order of the definition.
func (s *Schema) SelectableFields() ([]SelectableField, error) {
	p := s.load()
	f, err := p.fields.get(func() (*fields, error) {
		version, err := s.source()
		if err != nil {
			return nil, err
		}
		f := &fields{}
		for _, selectable := range version.SelectableFields {
			field := SelectableField{Name: strings.TrimPrefix(selectable.JSONPath, ".")}
			field.path, field.err = newPath(selectable.JSONPath)
			f.list = append(f.list, field)
		}
		p.size.Add(int64(256 * len(f.list)))
		return f, nil
	})
	if err != nil {
		return nil, err
	}
	return f.list, nil
}

// Value returns the field's value in an object as a field selector writes it, "" if the object has none.
func (f *SelectableField) Value(obj map[string]any) (string, error) {
	if f.err != nil {
		return "", fmt.Errorf("unexpected error parsing jsonPath: %w", f.err)
	}
	var value any
	if f.path.plain != nil {
		value, _ = lookUp(obj, f.path.plain)
	} else {
		found, _, more, err := f.path.find(obj)
		if err != nil {
			return "", fmt.Errorf("unexpected error finding value with jsonPath: %w", err)
		}
		if more {
			return "", fmt.Errorf("unexpectedly received more than one JSON path result")
		}
		value = found
	}
	switch value := value.(type) {
	case nil:
		return "", nil
	case string:
		return value, nil
	}
	return fmt.Sprint(value), nil
}
