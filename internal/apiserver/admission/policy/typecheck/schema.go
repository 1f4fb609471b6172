package typecheck

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// documents reads OpenAPI v3 documents for one check. A document has schemas of more kinds than a policy needs: only those are decoded.
type documents struct {
	read   func(schema.GroupVersion) ([]byte, error)
	parsed map[schema.GroupVersion]*document
}

type document struct {
	Components struct {
		Schemas map[string]json.RawMessage `json:"schemas"`
	} `json:"components"`
}

const refPrefix = "#/components/schemas/"

// typeOf returns the CEL type of a kind, under the given name.
func (d *documents) typeOf(gvk schema.GroupVersionKind, name string) (*apiservercel.DeclType, error) {
	doc, err := d.document(gvk.GroupVersion())
	if err != nil {
		return nil, err
	}
	root, err := doc.find(gvk)
	if err != nil {
		return nil, err
	}
	resolved, err := doc.resolve(refPrefix+root, map[string]bool{})
	if err != nil {
		return nil, err
	}
	t := common.SchemaDeclType(&openapi.Schema{Schema: resolved}, true)
	if t == nil {
		return nil, nil
	}
	return t.MaybeAssignTypeName(name), nil
}

func (d *documents) document(gv schema.GroupVersion) (*document, error) {
	if doc := d.parsed[gv]; doc != nil {
		return doc, nil
	}
	text, err := d.read(gv)
	if err != nil {
		return nil, err
	}
	doc := &document{}
	if err := json.Unmarshal(text, doc); err != nil {
		return nil, fmt.Errorf("failed to parse the OpenAPI document of %s: %w", gv, err)
	}
	d.parsed[gv] = doc
	return doc, nil
}

// find returns the name of the schema of a kind.
func (d *document) find(gvk schema.GroupVersionKind) (string, error) {
	for name, text := range d.Components.Schemas {
		var kinds struct {
			List []schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
		}
		if err := json.Unmarshal(text, &kinds); err != nil {
			return "", fmt.Errorf("failed to parse the schema %s: %w", name, err)
		}
		for _, kind := range kinds.List {
			if kind == gvk {
				return name, nil
			}
		}
	}
	return "", fmt.Errorf("there is no schema of %s", gvk)
}

// resolve returns the schema that a reference names, with all references in it replaced. above has the references that lead there: one to them is an
// object of unknown fields, as a schema cannot contain itself.
func (d *document) resolve(ref string, above map[string]bool) (*spec.Schema, error) {
	if above[ref] {
		return &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}, nil
	}
	text, ok := d.Components.Schemas[strings.TrimPrefix(ref, refPrefix)]
	if !ok {
		return nil, fmt.Errorf("there is no schema %s", ref)
	}
	s := &spec.Schema{}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("failed to parse the schema %s: %w", ref, err)
	}
	above[ref] = true
	defer delete(above, ref)
	return d.expand(s, above)
}

// expand replaces the references in a schema.
func (d *document) expand(s *spec.Schema, above map[string]bool) (_ *spec.Schema, err error) {
	if ref := refOf(s); ref != "" {
		return d.resolve(ref, above)
	}
	for name, property := range s.Properties {
		expanded, err := d.expand(&property, above)
		if err != nil {
			return nil, err
		}
		s.Properties[name] = *expanded
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		if s.AdditionalProperties.Schema, err = d.expand(s.AdditionalProperties.Schema, above); err != nil {
			return nil, err
		}
	}
	if s.Items != nil && s.Items.Schema != nil {
		if s.Items.Schema, err = d.expand(s.Items.Schema, above); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// refOf returns the reference that a schema is; empty if it is none. A reference that has a description or a default is wrapped in allOf.
func refOf(s *spec.Schema) string {
	if s.Ref.GetURL() != nil {
		return s.Ref.String()
	}
	for i := range s.AllOf {
		if ref := refOf(&s.AllOf[i]); ref != "" {
			return ref
		}
	}
	return ""
}
