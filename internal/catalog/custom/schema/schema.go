package schema

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Schema is what the schema of one version of a definition says of its objects. Its parts are compiled when first used, once for all
// goroutines, and released by Drop. All methods may be called concurrently, each with objects of its own.
type Schema struct {
	kind           schema.GroupVersionKind
	preserveFields bool // spec.preserveUnknownFields of the definition
	hasStatus      bool
	source         Source

	mu    sync.Mutex // held while parts are made
	parts atomic.Pointer[parts]
}

// Source returns a version of a definition, decoded anew. It is called when something must be compiled and must return the same each time.
type Source func() (*apiextensionsv1.CustomResourceDefinitionVersion, error)

// New returns the schema of a version of a definition that has passed validation. It keeps the version encoded, which takes about a tenth
// of the memory of the decoded one.
func New(crd *apiextensionsv1.CustomResourceDefinition, version string) *Schema {
	return NewFrom(crd, version, encodedSource(crd, version))
}

// NewFrom is New for callers that have the definition's bytes anyway: the schema keeps nothing of the definition and asks the source.
func NewFrom(crd *apiextensionsv1.CustomResourceDefinition, version string, source Source) *Schema {
	kind := crd.Status.AcceptedNames.Kind
	if kind == "" {
		kind = crd.Spec.Names.Kind
	}
	s := &Schema{
		kind:           schema.GroupVersionKind{Group: crd.Spec.Group, Version: version, Kind: kind},
		preserveFields: crd.Spec.PreserveUnknownFields,
		source:         source,
	}
	if i := indexVersion(crd, version); i >= 0 {
		if sub := crd.Spec.Versions[i].Subresources; sub != nil {
			s.hasStatus = sub.Status != nil
		}
	}
	return s
}

// Structural returns the structural schema, for OpenAPI and managed fields: nil if the version has none. It is decoded anew for each call: a definition that has
// no objects is described too, and should not be compiled for that.
func (s *Schema) Structural() (*structuralschema.Structural, error) {
	version, err := s.source()
	if err != nil {
		return nil, err
	}
	_, structural, err := s.convert(version)
	return structural, err
}

// Drop releases what was compiled. Calls that are under way finish with what they have; the next one compiles again.
func (s *Schema) Drop() {
	s.parts.Store(nil)
}

// Size estimates the bytes that the compiled parts hold. It is 0 when nothing is compiled.
func (s *Schema) Size() int {
	if p := s.parts.Load(); p != nil {
		return int(p.size.Load())
	}
	return 0
}

func encodedSource(crd *apiextensionsv1.CustomResourceDefinition, version string) Source {
	name := crd.Name
	i := indexVersion(crd, version)
	if i < 0 {
		return func() (*apiextensionsv1.CustomResourceDefinitionVersion, error) {
			return nil, fmt.Errorf("version %s not found in apiextensionsv1.CustomResourceDefinition: %v", version, name)
		}
	}
	encoded, err := crd.Spec.Versions[i].Marshal()
	return func() (*apiextensionsv1.CustomResourceDefinitionVersion, error) {
		if err != nil {
			return nil, err
		}
		v := &apiextensionsv1.CustomResourceDefinitionVersion{}
		if err := v.Unmarshal(encoded); err != nil {
			return nil, fmt.Errorf("failed to decode version %s of %s: %w", version, name, err)
		}
		return v, nil
	}
}

func indexVersion(crd *apiextensionsv1.CustomResourceDefinition, version string) int {
	return slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version })
}

// parts are what was compiled, each when first needed.
type parts struct {
	compiled   lazy[*compiled]
	validators lazy[*validators]
	rules      lazy[*rules]
	columns    lazy[*Columns]
	fields     lazy[*fields]
	size       atomic.Int64
}

// lazy is a value that is made once, by the first goroutine that needs it, while others wait.
type lazy[T any] struct {
	once  sync.Once
	value T
	err   error
}

func (l *lazy[T]) get(build func() (T, error)) (T, error) {
	l.once.Do(func() {
		l.err = fmt.Errorf("failed to compile the schema")
		l.value, l.err = build()
	})
	return l.value, l.err
}

func (s *Schema) load() *parts {
	if p := s.parts.Load(); p != nil {
		return p
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.parts.Load(); p != nil {
		return p
	}
	p := &parts{}
	s.parts.Store(p)
	return p
}

// compiled is what creates and updates need beside CEL rules.
type compiled struct {
	shape      *shape                       // of the structural schema, nil without one
	structural *structuralschema.Structural // kept only if there are embedded resources or rules
	check      *check                       // nil if no object can be known to be valid before the validators ran
	scale      *apiextensionsv1.CustomResourceSubresourceScale
	schemas    int // how many there are, one for each field
}

func (s *Schema) compiled() (*compiled, error) {
	p := s.load()
	return p.compiled.get(func() (*compiled, error) {
		c, size, err := s.compile()
		p.size.Add(int64(size))
		if c == nil {
			c = &compiled{}
		}
		return c, err
	})
}

func (s *Schema) compile() (*compiled, int, error) {
	version, err := s.source()
	if err != nil {
		return nil, 0, err
	}
	props, structural, err := s.convert(version)
	if err != nil {
		return nil, 0, err
	}
	openAPI, err := openAPISchema(props)
	if err != nil {
		return nil, 0, err
	}
	c := &compiled{shape: newShape(structural)}
	c.check, c.schemas = newCheck(openAPI)
	if sub := version.Subresources; sub != nil {
		c.scale = sub.Scale
	}
	size := checkSize * c.schemas
	if structural != nil && (c.shape.hasEmbedded || hasRules(structural)) {
		c.structural = structural
		size += structuralSize * c.schemas
	}
	return c, size, nil
}

// Estimates of what the parts of a compiled schema hold for each schema in it, that is for each field. BenchmarkCompile measures them.
const (
	checkSize      = 500 // with the shape
	structuralSize = 700
	valueSize      = 900
	validatorsSize = structuralSize + 700
)

// convert returns a version's schema as upstream's libraries take it, and the structural schema: nil if it has none.
func (s *Schema) convert(version *apiextensionsv1.CustomResourceDefinitionVersion) (*apiextensions.JSONSchemaProps, *structuralschema.Structural, error) {
	props, err := internalProps(version)
	if err != nil || props == nil {
		return nil, nil, err
	}
	structural, err := s.newStructural(props)
	return props, structural, err
}

// newStructural returns the structural schema, with defaults pruned. It is nil if the definition preserves unknown fields and its schema is
// not structural.
func (s *Schema) newStructural(props *apiextensions.JSONSchemaProps) (*structuralschema.Structural, error) {
	structural, err := structuralschema.NewStructural(props)
	if s.preserveFields {
		if err != nil {
			return nil, nil
		}
		return structural, nil
	}
	if err != nil {
		return nil, fmt.Errorf("failed to convert schema to structural: %w", err)
	}
	// The defaults are those of props, which nobody else has.
	if err := defaulting.PruneDefaults(structural); err != nil {
		return nil, fmt.Errorf("failed to prune defaults: %w", err)
	}
	return structural, nil
}

// internalProps returns the version's schema as upstream's libraries take it, nil if it has none.
func internalProps(version *apiextensionsv1.CustomResourceDefinitionVersion) (*apiextensions.JSONSchemaProps, error) {
	if version.Schema == nil || version.Schema.OpenAPIV3Schema == nil {
		return nil, nil
	}
	props := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(version.Schema.OpenAPIV3Schema, props, nil); err != nil {
		return nil, fmt.Errorf("failed converting CRD validation to internal version: %w", err)
	}
	return props, nil
}

// openAPISchema returns the schema that values are validated with: unknown formats are ignored.
func openAPISchema(props *apiextensions.JSONSchemaProps) (*spec.Schema, error) {
	openAPI := &spec.Schema{}
	if props == nil {
		return openAPI, nil
	}
	ignore := validation.StripUnsupportedFormatsPostProcessorForVersion(environment.DefaultCompatibilityVersion())
	if err := validation.ConvertJSONSchemaPropsWithPostProcess(props, openAPI, ignore); err != nil {
		return nil, err
	}
	return openAPI, nil
}
