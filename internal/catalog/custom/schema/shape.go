package schema

import (
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// shape is the part of a structural schema that says which fields objects have and what they default to. It is walked with each object, so
// its nodes are small and reached by pointer.
type shape struct {
	properties map[string]*shape
	defaulted  []defaultedProperty
	items      *shape
	additional *shape // of additionalProperties; nil also if they are true
	def        any    // the default, nil if there is none

	hasAdditional bool // additionalProperties is there, as a schema or true
	preserves     bool // x-kubernetes-preserve-unknown-fields
	embedded      bool // x-kubernetes-embedded-resource
	nullable      bool
	listType      string
	mapKeys       []string

	hasDefaults  bool // here or below
	hasEmbedded  bool // here or below
	hasListTypes bool // set or map, here or below
}

// Leaves are the shapes of scalars without a default, which most fields are.
var (
	leaf         = &shape{}
	nullableLeaf = &shape{nullable: true}
)

func newShape(s *structuralschema.Structural) *shape {
	switch {
	case s == nil:
		return nil
	case isLeaf(s) && s.Nullable:
		return nullableLeaf
	case isLeaf(s):
		return leaf
	}
	n := &shape{
		items:         newShape(s.Items),
		def:           s.Default.Object,
		hasAdditional: s.AdditionalProperties != nil,
		preserves:     s.XPreserveUnknownFields,
		embedded:      s.XEmbeddedResource,
		nullable:      s.Nullable,
		mapKeys:       s.XListMapKeys,
	}
	if s.XListType != nil {
		n.listType = *s.XListType
	}
	n.hasDefaults = n.def != nil
	n.hasEmbedded = n.embedded
	n.hasListTypes = n.listType == "set" || n.listType == "map"
	if n.hasAdditional {
		n.additional = newShape(s.AdditionalProperties.Structural)
	}
	n.inherit(n.items)
	n.inherit(n.additional)
	if len(s.Properties) > 0 {
		n.properties = make(map[string]*shape, len(s.Properties))
	}
	for name, property := range s.Properties {
		child := newShape(&property)
		n.properties[name] = child
		n.inherit(child)
		if child.def != nil {
			n.defaulted = append(n.defaulted, defaultedProperty{name, child})
		}
	}
	return n
}

// defaultedProperty is a property that has a default.
type defaultedProperty struct {
	name string
	*shape
}

func isLeaf(s *structuralschema.Structural) bool {
	return s.Items == nil && s.AdditionalProperties == nil && len(s.Properties) == 0 && s.Default.Object == nil &&
		!s.XPreserveUnknownFields && !s.XEmbeddedResource && s.XListType == nil && len(s.XListMapKeys) == 0
}

func (n *shape) inherit(child *shape) {
	if child == nil {
		return
	}
	n.hasDefaults = n.hasDefaults || child.hasDefaults
	n.hasEmbedded = n.hasEmbedded || child.hasEmbedded
	n.hasListTypes = n.hasListTypes || child.hasListTypes
}

// dropsNull says whether a null of this schema is removed rather than stored or replaced by the default.
func (n *shape) dropsNull() bool {
	return n != nil && !n.nullable && n.def == nil
}

// child returns the schema of a field, nil if it has none.
func (n *shape) child(field string) *shape {
	if n == nil {
		return nil
	}
	if p, ok := n.properties[field]; ok {
		return p
	}
	return n.additional
}
