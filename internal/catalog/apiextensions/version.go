package apiextensions

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	internal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

const (
	maxSelectableFields = 8
	maxWarning          = 256
)

var (
	columnTypes   = []string{"boolean", "date", "integer", "number", "string"}
	columnFormats = []string{"byte", "date", "date-time", "double", "float", "int32", "int64", "password"}
)

// validateVersion validates what is particular to one version; validateSharedParts does the rest.
func (v *validator) validateVersion(p *check.Part, version *internal.CustomResourceDefinitionVersion) {
	validateDeprecation(p, version)
	subresources := version.Subresources
	if !internal.HasPerVersionSubresources(v.spec.Versions) {
		subresources = v.spec.Subresources
	}
	schema := v.newSchema(version.Schema, version.Name)
	schema.validate(p.Child("schema"), version.Schema, hasStatus(subresources))
	validateSubresources(p.Child("subresources"), version.Subresources)
	for i := range version.AdditionalPrinterColumns {
		validateColumn(p.Item("additionalPrinterColumns", i), &version.AdditionalPrinterColumns[i])
	}
	if len(version.SelectableFields) == 0 {
		return
	}
	if version.Schema == nil || version.Schema.OpenAPIV3Schema == nil {
		p.Invalid("selectableFields", "", "may only be set when `version.schema.openAPIV3Schema` is not included")
		return
	}
	v.validateSelectableFields(p, version.SelectableFields, schema, version.Name)
}

func validateDeprecation(p *check.Part, version *internal.CustomResourceDefinitionVersion) {
	const name = "deprecationWarning"
	warning := version.DeprecationWarning
	switch {
	case warning == nil:
		return
	case !version.Deprecated:
		p.Invalid(name, warning, "can only be set for deprecated versions")
		return
	}
	if len(*warning) > maxWarning {
		p.Invalid(name, warning, "must be <= 256 characters long")
	}
	if *warning == "" {
		p.Invalid(name, warning, "must not be an empty string")
	}
	const printable = "must only contain printable UTF-8 characters"
	if i := strings.IndexFunc(*warning, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
		p.Invalid(name, warning, fmt.Sprintf(printable+"; non-printable character found at index %d", i))
	}
	if !utf8.ValidString(*warning) {
		p.Invalid(name, warning, printable)
	}
}

func validateSubresources(p *check.Part, s *internal.CustomResourceSubresources) {
	if s == nil || s.Scale == nil {
		return
	}
	const under = "should be a json path under "
	for _, replicas := range []struct{ name, path, root string }{
		{"scale.specReplicasPath", s.Scale.SpecReplicasPath, ".spec"},
		{"scale.statusReplicasPath", s.Scale.StatusReplicasPath, ".status"},
	} {
		switch {
		case replicas.path == "":
			p.Required(replicas.name, "")
		case isSimplePath(p, replicas.name, replicas.path) && !strings.HasPrefix(replicas.path, replicas.root+"."):
			p.Invalid(replicas.name, replicas.path, under+replicas.root)
		}
	}
	const name = "scale.labelSelectorPath"
	selector := s.Scale.LabelSelectorPath
	if selector == nil || *selector == "" {
		return
	}
	if isSimplePath(p, name, *selector) && !strings.HasPrefix(*selector, ".spec.") && !strings.HasPrefix(*selector, ".status.") {
		p.Invalid(name, selector, under+"either .spec or .status")
	}
}

// isSimplePath reports whether a JSON path that is not empty begins with a dot, and adds an error if it does not.
func isSimplePath(p *check.Part, name, path string) bool {
	if path[0] == '.' {
		return true
	}
	p.Invalid(name, path, "must be a simple json path starting with .")
	return false
}

func validateColumn(p *check.Part, c *internal.CustomResourceColumnDefinition) {
	p.Present("name", c.Name != "", "")
	types := "must be one of " + strings.Join(columnTypes, ",")
	if c.Type == "" {
		p.Required("type", types)
	} else if !slices.Contains(columnTypes, c.Type) {
		p.Invalid("type", c.Type, types)
	}
	if c.Format != "" && !slices.Contains(columnFormats, c.Format) {
		p.Invalid("format", c.Format, "must be one of "+strings.Join(columnFormats, ","))
	}
	if c.JSONPath == "" {
		p.Required("JSONPath", "")
	} else {
		isSimplePath(p, "JSONPath", c.JSONPath)
	}
}

// validateSelectableFields validates the fields that selectors may name, in the given version or, if that is "", in all.
func (v *validator) validateSelectableFields(p *check.Part, fields []internal.SelectableField, schema *schema, version string) {
	if schema.err != nil {
		p.Invalid("schema.openAPIV3Schema", "", schema.err.Error())
	}
	if schema.structural == nil { // upstream panics
		return
	}
	paths := map[string]bool{}
	for i, f := range fields {
		item := p.Item("selectableFields", i)
		if f.JSONPath == "" {
			item.Required("jsonPath", "")
			continue
		}
		path, found, err := resolve(f.JSONPath, schema.structural, false)
		if err != nil {
			item.Invalid("jsonPath", f.JSONPath, fmt.Sprintf("is an invalid path: %v", err))
			continue
		}
		if path.Root().String() == "metadata" {
			item.Invalid("jsonPath", f.JSONPath, "must not point to fields in metadata")
		}
		if !isSelectable(found) {
			item.Invalid("jsonPath", f.JSONPath, "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.")
		}
		if paths[path.String()] {
			item.Add(field.Duplicate(item.Path("jsonPath"), f.JSONPath))
		}
		paths[path.String()] = true
	}
	if len(paths) > maxSelectableFields && !v.lenient.manyFields(version, fields) {
		p.Add(field.TooMany(p.Path("selectableFields"), len(paths), maxSelectableFields))
	}
}

func isSelectable(s *structuralschema.Structural) bool {
	return s != nil && (s.Type == "string" || s.Type == "boolean" || s.Type == "integer")
}
