package custom

import (
	"slices"
	"strings"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	openapiv2 "k8s.io/apiextensions-apiserver/pkg/controller/openapi/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// dialect is the version of OpenAPI, as the prefix of its references to definitions.
type dialect string

const (
	v2 dialect = "#/definitions/"
	v3 dialect = "#/components/schemas/"
)

func (v dialect) ref(name string) *spec.Schema { return spec.RefSchema(string(v) + name) }

const (
	gvkExtension        = "x-kubernetes-group-version-kind"
	selectableExtension = "x-kubernetes-selectable-fields"
	preserveExtension   = "x-kubernetes-preserve-unknown-fields"
	embeddedExtension   = "x-kubernetes-embedded-resource"

	meta       = "io.k8s.apimachinery.pkg.apis.meta.v1."
	objectMeta = meta + "ObjectMeta"
	listMeta   = meta + "ListMeta"
	scaleModel = "io.k8s.api.autoscaling.v1.Scale"

	conventions = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
)

// sharedModels are the built-in definitions to which operations of custom resources refer.
var sharedModels = []string{meta + "Status", meta + "DeleteOptions", meta + "Patch", scaleModel}

// object returns the definition of the resource's kind.
func (r *Resource) object(v dialect) *spec.Schema {
	s := r.properties(v)
	s.AddExtension(gvkExtension, []any{map[string]any{"group": r.GVK.Group, "version": r.GVK.Version, "kind": r.GVK.Kind}})
	r.addSelectableFields(s)
	return s
}

// properties returns the schema with the properties that every object has. kubectl takes the properties of an object for the only ones it
// may have. So there must be none in a definition that allows others: without a schema, and in v2, which cannot express that others are
// preserved.
func (r *Resource) properties(v dialect) *spec.Schema {
	if r.Schema == nil || v == v2 && (r.Schema.XPreserveUnknownFields || r.PreserveUnknownFields) {
		return new(spec.Schema).Typed("object", "")
	}
	structural := r.Schema.DeepCopy().Unfold()
	if v == v2 {
		structural = openapiv2.ToStructuralOpenAPIV2(forV2(structural))
	}
	s := structural.ToKubeOpenAPI()
	s.SetProperty("metadata", *v.ref(objectMeta).WithDescription(metav1.PartialObjectMetadata{}.SwaggerDoc()["metadata"]))
	addTypeMeta(s)
	addEmbedded(s, v)
	return s
}

// forV2 removes the defaults, on which older clients fail, and adds the empty value validations that ToStructuralOpenAPIV2 requires.
func forV2(s *structuralschema.Structural) *structuralschema.Structural {
	visitor := structuralschema.Visitor{Structural: func(s *structuralschema.Structural) bool {
		s.Default = structuralschema.JSON{}
		if s.ValueValidation == nil {
			s.ValueValidation = &structuralschema.ValueValidation{}
		}
		return true
	}}
	visitor.Visit(s)
	return s
}

// list returns the definition of the resource's list.
func (r *Resource) list(v dialect) *spec.Schema {
	items := spec.ArrayProperty(v.ref(string(r.model()))).WithDescription("List of " + r.Plural + ". More info: " + conventions)
	s := new(spec.Schema).Typed("object", "").WithDescription(r.ListKind+" is a list of "+r.GVK.Kind).WithRequired("items").
		SetProperty("items", *items).
		SetProperty("metadata", *v.ref(listMeta).WithDescription(metav1.PartialObjectMetadataList{}.SwaggerDoc()["metadata"]))
	addTypeMeta(s)
	s.AddExtension(gvkExtension, []any{map[string]any{"group": r.GVK.Group, "version": r.GVK.Version, "kind": r.ListKind}})
	r.addSelectableFields(s)
	return s
}

func (r *Resource) addSelectableFields(s *spec.Schema) {
	if len(r.SelectableFields) == 0 {
		return
	}
	fields := make([]any, len(r.SelectableFields))
	for i, path := range r.SelectableFields {
		fields[i] = map[string]any{"fieldPath": strings.TrimPrefix(path, ".")}
	}
	s.AddExtension(selectableExtension, fields)
}

// addTypeMeta adds apiVersion and kind.
func addTypeMeta(s *spec.Schema) {
	docs := metav1.TypeMeta{}.SwaggerDoc()
	for _, name := range []string{"apiVersion", "kind"} {
		s.SetProperty(name, *spec.StringProperty().WithDescription(docs[name]))
	}
}

// addEmbedded adds apiVersion, kind and metadata to every schema inside s that is of an embedded resource, except, in v2, where unknown
// fields are preserved.
func addEmbedded(s *spec.Schema, v dialect) {
	if s == nil {
		return
	}
	for name, property := range s.Properties {
		addEmbedded(&property, v)
		s.Properties[name] = property
	}
	if s.Items != nil {
		addEmbedded(s.Items.Schema, v)
	}
	if s.AdditionalProperties != nil {
		addEmbedded(s.AdditionalProperties.Schema, v)
	}
	if preserve, _ := s.Extensions.GetBool(preserveExtension); preserve && v == v2 {
		return
	}
	if embedded, _ := s.Extensions.GetBool(embeddedExtension); !embedded {
		return
	}
	s.SetProperty("apiVersion", *spec.StringProperty().WithDescription(
		"apiVersion defines the versioned schema of this representation of an object. More info: " + conventions + "#resources"))
	s.SetProperty("kind", *spec.StringProperty().WithDescription(
		"kind is a string value representing the type of this object. In CamelCase. More info: " + conventions + "#types-kinds"))
	s.SetProperty("metadata", *v.ref(objectMeta).WithDescription(metav1.PartialObjectMetadata{}.SwaggerDoc()["metadata"]))
	for _, name := range []string{"kind", "apiVersion"} {
		if !slices.Contains(s.Required, name) {
			s.Required = append(s.Required, name)
		}
	}
}
