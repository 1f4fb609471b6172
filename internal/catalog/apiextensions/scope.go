package apiextensions

import (
	"errors"

	internal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// scope is a schema as its CEL rules see it: the type of self, and how many values of it an object can have. A nil scope is one
// in which rules are not compiled.
type scope struct {
	parent     *scope
	schema     *internal.JSONSchemaProps
	structural *structuralschema.Structural
	ruled      bool     // whether this schema or one around it has rules: only then is its type needed
	count      *uint64  // how many values an object has at most; nil if there is no bound
	part       typePart // takes the type from the parent's

	resolved bool
	decl     *apiservercel.DeclType
	err      error
}

// typePart returns the type of a part of a type, and false if the part has none.
type typePart func(*apiservercel.DeclType) (*apiservercel.DeclType, bool)

func rootScope(s *internal.JSONSchemaProps, structural *structuralschema.Structural) *scope {
	one := uint64(1)
	return &scope{schema: s, structural: structural, ruled: len(s.XValidations) > 0, count: &one}
}

func (s *scope) property(name string, schema *internal.JSONSchemaProps, structural *structuralschema.Structural) *scope {
	return s.child(schema, structural, func(parent *apiservercel.DeclType) (*apiservercel.DeclType, bool) {
		escaped, ok := apiservercel.Escape(name)
		if !ok {
			return nil, false
		}
		f, ok := parent.Fields[escaped]
		if !ok {
			return nil, false
		}
		return f.Type, true
	})
}

func (s *scope) item(schema *internal.JSONSchemaProps, structural *structuralschema.Structural) *scope {
	return s.child(schema, structural, elementType)
}

func (s *scope) additional(schema *internal.JSONSchemaProps, structural *structuralschema.Structural) *scope {
	return s.child(schema, structural, elementType)
}

func elementType(parent *apiservercel.DeclType) (*apiservercel.DeclType, bool) {
	return parent.ElemType, true
}

func (s *scope) child(schema *internal.JSONSchemaProps, structural *structuralschema.Structural, part typePart) *scope {
	if s == nil {
		return nil
	}
	child := &scope{parent: s, schema: schema, structural: structural, ruled: s.ruled || len(schema.XValidations) > 0, part: part}
	if s.count != nil {
		if elements := maxElements(s.schema); elements != nil {
			product := multiply(*s.count, *elements)
			child.count = &product
		}
	}
	return child
}

// maxElements returns how many values of each schema within a value of this schema has at most; nil if there is no bound.
func maxElements(s *internal.JSONSchemaProps) *uint64 {
	bound := new(int64)
	switch {
	case s.Type == "array":
		bound = s.MaxItems
	case s.Type == "object" && s.AdditionalProperties != nil:
		bound = s.MaxProperties
	default:
		*bound = 1
	}
	if bound == nil {
		return nil
	}
	elements := uint64(max(*bound, 0))
	return &elements
}

// resolve returns the type of self: a part of the parent's type if that is known, which is cheap, or else one made from the schema.
func (s *scope) resolve() (*apiservercel.DeclType, error) {
	if s.resolved {
		return s.decl, s.err
	}
	s.resolved = true
	if p := s.parent; p != nil && p.ruled {
		decl, err := p.resolve()
		if err != nil {
			s.err = err
			return nil, err
		}
		if decl != nil {
			if part, ok := s.part(decl); ok {
				s.decl = part
				return part, nil
			}
		}
	}
	s.decl = model.SchemaDeclType(s.structural, s.parent == nil || s.schema.XEmbeddedResource)
	if s.decl == nil {
		s.err = errors.New("unable to convert structural schema to CEL declarations")
	}
	return s.decl, s.err
}
