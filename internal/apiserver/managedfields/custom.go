package managedfields

import (
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"skiff/internal/apiserver/managedfields/mergeschema"
	"skiff/internal/catalog"
	"skiff/internal/catalog/custom"
)

// customTypes converts custom objects to typed values by the schemas of their versions, each of which is converted when first needed.
type customTypes struct {
	types map[schema.GroupVersionKind]func() (typed.ParseableType, error)
}

func newCustomTypes(infos map[schema.GroupVersion]*catalog.Info) *customTypes {
	c := &customTypes{types: map[schema.GroupVersionKind]func() (typed.ParseableType, error){}}
	for _, info := range infos {
		version := info.New().(*custom.Object).Version()
		c.types[info.GVK] = sync.OnceValues(func() (typed.ParseableType, error) { return customType(version) })
	}
	return c
}

// CustomTypes returns the schema by which objects of a version of a custom resource are merged.
func CustomTypes(info *catalog.Info) managedfields.TypeConverter {
	return newCustomTypes(map[schema.GroupVersion]*catalog.Info{info.GVK.GroupVersion(): info})
}

// ObjectToTyped returns the typed value of an object, which must have its kind set.
func (c *customTypes) ObjectToTyped(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	gvk := obj.GetObjectKind().GroupVersionKind()
	typeOf, ok := c.types[gvk]
	if !ok {
		return nil, fmt.Errorf("no corresponding type for %v", gvk)
	}
	t, err := typeOf()
	if err != nil {
		return nil, err
	}
	if o, ok := obj.(*custom.Object); ok {
		root, err := o.Root()
		if err != nil {
			return nil, err
		}
		return t.FromUnstructured(root, opts...)
	}
	return t.FromUnstructured(obj.(*unstructured.Unstructured).UnstructuredContent(), opts...)
}

// TypedToObject returns an unstructured object.
func (c *customTypes) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	return types.TypedToObject(value)
}

// rootType is the name of the type of a version's objects in its merge schema.
const rootType = "object"

// customType returns the type of the objects of a version: that of its schema, with the metadata of built-in kinds.
func customType(version *custom.Version) (typed.ParseableType, error) {
	structural, err := version.Schema().Structural()
	if err != nil {
		return typed.ParseableType{}, err
	}
	root := &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
	preserve := structural == nil
	if structural != nil {
		root = structural.ToKubeOpenAPI()
		preserve = structural.XPreserveUnknownFields
	}
	if root.Properties == nil {
		root.Properties = map[string]spec.Schema{}
	}
	addEmbedded(root)
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		root.Properties[name] = *spec.StringProperty()
	}
	merge, err := schemaconv.ToSchemaFromOpenAPI(map[string]*spec.Schema{rootType: root}, preserve)
	if err != nil {
		return typed.ParseableType{}, fmt.Errorf("failed to convert the schema of %s for managed fields: %w", version.Kind(), err)
	}
	if err := addMetadata(merge); err != nil {
		return typed.ParseableType{}, fmt.Errorf("failed to convert the schema of %s for managed fields: %w", version.Kind(), err)
	}
	name := rootType
	return typed.ParseableType{Schema: merge, TypeRef: smdschema.TypeRef{NamedType: &name}}, nil
}

// addEmbedded declares kind, apiVersion and metadata of all embedded resources below a schema.
func addEmbedded(s *spec.Schema) {
	for name, property := range s.Properties {
		addEmbedded(&property)
		s.Properties[name] = property
	}
	if s.Items != nil && s.Items.Schema != nil {
		addEmbedded(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		addEmbedded(s.AdditionalProperties.Schema)
	}
	if embedded, _ := s.Extensions.GetBool("x-kubernetes-embedded-resource"); !embedded {
		return
	}
	s.SetProperty("apiVersion", *spec.StringProperty())
	s.SetProperty("kind", *spec.StringProperty())
	if metaName, ok := objectMetaType(); ok {
		s.SetProperty("metadata", *spec.RefSchema("#/definitions/" + metaName))
	}
}

// addMetadata gives the root type of a merge schema the metadata of built-in kinds.
func addMetadata(merge *smdschema.Schema) error {
	metaName, ok := objectMetaType()
	i := slices.IndexFunc(merge.Types, func(t smdschema.TypeDef) bool { return t.Name == rootType })
	if !ok || i < 0 || merge.Types[i].Map == nil {
		return fmt.Errorf("the schema has no map at its root")
	}
	fields := merge.Types[i].Map.Fields
	at := slices.IndexFunc(fields, func(f smdschema.StructField) bool { return f.Name == "metadata" })
	if at < 0 {
		return fmt.Errorf("the schema has no metadata at its root")
	}
	fields[at].Type = smdschema.TypeRef{NamedType: &metaName}
	have := map[string]bool{}
	for _, t := range merge.Types {
		have[t.Name] = true
	}
	for _, t := range metadataTypes() {
		if !have[t.Name] {
			merge.Types = append(merge.Types, t)
		}
	}
	return nil
}

// objectMetaType returns the name of the type of metadata in the schema of built-in kinds.
func objectMetaType() (string, bool) {
	name, ok := mergeschema.TypeName(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
	if !ok {
		return "", false
	}
	namespace, ok := mergeschema.Schema().Resolve(smdschema.TypeRef{NamedType: &name})
	if !ok || namespace.Map == nil {
		return "", false
	}
	f, ok := namespace.Map.FindField("metadata")
	if !ok || f.Type.NamedType == nil {
		return "", false
	}
	return *f.Type.NamedType, true
}

// metadataTypes returns the type of metadata and all types that it refers to.
var metadataTypes = sync.OnceValue(func() []smdschema.TypeDef {
	var found []smdschema.TypeDef
	seen := map[string]bool{}
	var addType func(smdschema.TypeRef)
	addAtom := func(a smdschema.Atom) {
		if a.List != nil {
			addType(a.List.ElementType)
		}
		if a.Map != nil {
			addType(a.Map.ElementType)
			for _, f := range a.Map.Fields {
				addType(f.Type)
			}
		}
	}
	addType = func(ref smdschema.TypeRef) {
		addAtom(ref.Inlined)
		if ref.NamedType == nil || seen[*ref.NamedType] {
			return
		}
		seen[*ref.NamedType] = true
		if i := slices.IndexFunc(mergeschema.Schema().Types, func(t smdschema.TypeDef) bool { return t.Name == *ref.NamedType }); i >= 0 {
			t := mergeschema.Schema().Types[i]
			found = append(found, t)
			addAtom(t.Atom)
		}
	}
	if name, ok := objectMetaType(); ok {
		addType(smdschema.TypeRef{NamedType: &name})
	}
	return found
})

// fromRoot returns the custom object of decoded JSON.
func fromRoot(info *catalog.Info, root map[string]any) (runtime.Object, error) {
	obj := info.New().(*custom.Object)
	if _, err := obj.SetRoot(runtime.DeepCopyJSON(root), false); err != nil {
		return nil, fmt.Errorf("unable to convert unstructured object to %v: %w", info.GVK, err)
	}
	obj.TypeMeta = metav1.TypeMeta{APIVersion: info.GVK.GroupVersion().String(), Kind: info.GVK.Kind}
	return obj, nil
}
