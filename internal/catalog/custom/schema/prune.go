package schema

import (
	"slices"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
)

// Prune removes fields that the schema does not have, and nulls that are neither nullable nor have a default. It brings the metadata of
// embedded resources into the form that a typed decoder would give it. apiVersion, kind and metadata of the object itself stay as they are.
// With report it returns the paths of the fields it removed, such as "spec.foo" or "spec.list[0].bar": sorted, embedded metadata last. An
// error means that the metadata of an embedded resource cannot be decoded.
func (s *Schema) Prune(obj map[string]any, report bool) (unknown []string, err error) {
	return s.prune(obj, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: report})
}

// PruneStored is Prune for objects from the store: metadata of embedded resources that cannot be decoded is dropped field by field.
func (s *Schema) PruneStored(obj map[string]any) error {
	_, err := s.prune(obj, objectmeta.CoerceOptions{DropInvalidFields: true})
	return err
}

func (s *Schema) prune(obj map[string]any, opts objectmeta.CoerceOptions) (unknown []string, err error) {
	c, err := s.compiled()
	if err != nil {
		return nil, err
	}
	p := pruner{paths: structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: opts.ReturnUnknownFieldPaths}}
	if !s.preserveFields {
		p.pruneRoot(obj, c.shape)
		slices.Sort(p.paths.UnknownFieldPaths)
	}
	if c.shape == nil || !c.shape.hasEmbedded {
		return p.paths.UnknownFieldPaths, nil
	}
	fieldErr, inMetadata := objectmeta.CoerceWithOptions(nil, obj, c.structural, false, opts)
	if fieldErr != nil {
		return nil, fieldErr
	}
	return append(p.paths.UnknownFieldPaths, inMetadata...), nil
}

// pruner walks an object beside its schema.
type pruner struct {
	paths structuralschema.UnknownFieldPathOptions
}

func isMetaField(name string) bool {
	return name == "apiVersion" || name == "kind" || name == "metadata"
}

func (p *pruner) pruneRoot(obj map[string]any, n *shape) {
	preserves := n != nil && n.preserves
	for name, value := range obj {
		if !isMetaField(name) {
			p.pruneField(obj, name, value, n, preserves)
		}
	}
}

// prune removes what the schema does not have from a value. Without a schema nothing is known of what the value contains, so all fields
// of all maps in it go.
func (p *pruner) prune(value any, n *shape) {
	if n != nil && n.preserves {
		p.keep(value, n)
		return
	}
	switch value := value.(type) {
	case map[string]any:
		for name, child := range value {
			if n != nil && n.embedded && isMetaField(name) {
				pruneNull(value, name, child, n)
				continue
			}
			p.pruneField(value, name, child, n, false)
		}
	case []any:
		var items *shape
		if n != nil {
			items = n.items
		}
		p.each(value, items, p.prune)
	}
}

// keep prunes only below fields that the schema has. The items of a list that preserves unknown fields preserve them too.
func (p *pruner) keep(value any, n *shape) {
	if n == nil {
		return
	}
	switch value := value.(type) {
	case map[string]any:
		for name, child := range value {
			if n.embedded && isMetaField(name) {
				pruneNull(value, name, child, n)
				continue
			}
			p.pruneField(value, name, child, n, true)
		}
	case []any:
		p.each(value, n.items, p.keep)
	}
}

func (p *pruner) each(values []any, items *shape, prune func(any, *shape)) {
	length := len(p.paths.ParentPath)
	for i, child := range values {
		switch child.(type) {
		case map[string]any, []any:
			p.paths.AppendIndex(i)
			prune(child, items)
			p.paths.ParentPath = p.paths.ParentPath[:length]
		}
	}
}

// pruneField removes a field of a map, or what is unknown below it.
func (p *pruner) pruneField(parent map[string]any, name string, value any, n *shape, preserves bool) {
	var child *shape
	known := false
	if n != nil {
		if child, known = n.properties[name]; !known && n.hasAdditional {
			child, known = n.additional, true
		}
	}
	switch {
	case known && value == nil:
		if child.dropsNull() {
			delete(parent, name)
		}
	case known:
		switch value.(type) {
		case map[string]any, []any:
			length := len(p.paths.ParentPath)
			p.paths.AppendKey(name)
			p.prune(value, child)
			p.paths.ParentPath = p.paths.ParentPath[:length]
		}
	case !preserves:
		p.paths.RecordUnknownField(name)
		delete(parent, name)
	}
}

// pruneNull removes nulls from a field that is not pruned otherwise.
func pruneNull(parent map[string]any, name string, value any, n *shape) {
	child := n.child(name)
	if child == nil {
		return
	}
	if value == nil {
		if child.dropsNull() {
			delete(parent, name)
		}
		return
	}
	pruneNulls(value, child)
}

func pruneNulls(value any, n *shape) {
	switch value := value.(type) {
	case map[string]any:
		for name, child := range value {
			pruneNull(value, name, child, n)
		}
	case []any:
		if n.items == nil {
			return
		}
		for _, child := range value {
			pruneNulls(child, n.items)
		}
	}
}
