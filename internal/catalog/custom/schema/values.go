package schema

import (
	"sync"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiserver/pkg/cel/common"
)

// valueSchema is a structural schema as CEL values see it. It keeps what it returns: values ask for the schema of a field whenever a rule
// selects it.
type valueSchema struct {
	*model.Structural

	propertiesOnce sync.Once
	properties     map[string]common.Schema
	itemsOnce      sync.Once
	items          common.Schema
	additionalOnce sync.Once
	additional     common.SchemaOrBool
	resourceOnce   sync.Once
	resource       *valueSchema // with the fields of metadata, and apiVersion and kind
}

func newValueSchema(s *structuralschema.Structural) *valueSchema {
	return &valueSchema{Structural: &model.Structural{Structural: s}}
}

func (s *valueSchema) Properties() map[string]common.Schema {
	s.propertiesOnce.Do(func() {
		if s.Structural.Structural.Properties == nil {
			return
		}
		s.properties = make(map[string]common.Schema, len(s.Structural.Structural.Properties))
		for name, property := range s.Structural.Structural.Properties {
			s.properties[name] = newValueSchema(&property)
		}
	})
	return s.properties
}

func (s *valueSchema) Items() common.Schema {
	s.itemsOnce.Do(func() {
		if items := s.Structural.Structural.Items; items != nil {
			s.items = newValueSchema(items)
		}
	})
	return s.items
}

func (s *valueSchema) AdditionalProperties() common.SchemaOrBool {
	s.additionalOnce.Do(func() {
		if additional := s.Structural.Structural.AdditionalProperties; additional != nil {
			v := &valueSchemaOrBool{allows: additional.Bool}
			if additional.Structural != nil {
				v.schema = newValueSchema(additional.Structural)
			}
			s.additional = v
		}
	})
	return s.additional
}

func (s *valueSchema) WithTypeAndObjectMeta() common.Schema {
	return s.asResource()
}

func (s *valueSchema) asResource() *valueSchema {
	s.resourceOnce.Do(func() {
		s.resource = newValueSchema(model.WithTypeAndObjectMeta(s.Structural.Structural))
	})
	return s.resource
}

type valueSchemaOrBool struct {
	schema common.Schema
	allows bool
}

func (s *valueSchemaOrBool) Schema() common.Schema { return s.schema }

func (s *valueSchemaOrBool) Allows() bool { return s.allows }
