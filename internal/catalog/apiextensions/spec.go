package apiextensions

import (
	"slices"
	"strings"

	internal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/util/validation"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"skiff/internal/catalog/check"
	"skiff/internal/catalog/webhook"
)

// validator validates the spec of one definition.
type validator struct {
	spec       *internal.CustomResourceDefinitionSpec
	lenient    *leniency
	structural bool // whether schemas must be structural
}

func (v *validator) validateSpec(p *check.Part) {
	s := v.spec
	validateGroup(p, s.Group)
	validateEnum(p, "scope", s.Scope, internal.ClusterScoped, internal.NamespaceScoped)
	v.requireSchemas(p)
	v.decideStructural(p)
	v.validateVersions(p)

	names := p.Child("names")
	names.Present("plural", s.Names.Plural != "", "")
	names.Present("singular", s.Names.Singular != "", "")
	names.Present("kind", s.Names.Kind != "", "")
	names.Present("listKind", s.Names.ListKind != "", "")
	validateNames(names, (*apiextensionsv1.CustomResourceDefinitionNames)(&s.Names))

	v.validateSharedParts(p)
	if c := s.Conversion; c != nil {
		if c.Strategy != internal.NoneConverter && v.preservesUnknown() {
			p.Child("conversion").Invalid("strategy", c.Strategy, "must be None if spec.preserveUnknownFields is true")
		}
		v.validateConversion(p.Child("conversion"), c)
	}
}

func validateGroup(p *check.Part, group string) {
	errs := validation.IsDNS1123Subdomain(group)
	switch {
	case group == "":
		p.Required("group", "")
	case len(errs) > 0:
		p.Invalid("group", group, strings.Join(errs, ","))
	case !strings.Contains(group, "."):
		p.Invalid("group", group, "should be a domain with at least one dot")
	}
}

func validateEnum[S ~string](p *check.Part, name string, value S, supported ...S) {
	if value == "" {
		p.Required(name, "")
		return
	}
	names := make([]string, len(supported)) // as text: values of other types are shown as JSON
	for i := range supported {
		names[i] = string(supported[i])
	}
	check.OneOf(p, name, string(value), names...)
}

func (v *validator) preservesUnknown() bool {
	return v.spec.PreserveUnknownFields != nil && *v.spec.PreserveUnknownFields
}

// requireSchemas requires a schema of every version. An update of a definition without needs them of served versions whose objects are
// pruned.
func (v *validator) requireSchemas(p *check.Part) {
	if v.spec.Validation != nil && v.spec.Validation.OpenAPIV3Schema != nil {
		return
	}
	for i := range v.spec.Versions {
		version := &v.spec.Versions[i]
		if version.Schema != nil && version.Schema.OpenAPIV3Schema != nil {
			continue
		}
		schema := p.Item("versions", i).Child("schema")
		if !v.lenient.noSchema() {
			schema.Required("openAPIV3Schema", "")
		} else if !v.preservesUnknown() && version.Served {
			schema.Required("openAPIV3Schema", "because otherwise all fields are pruned")
		}
	}
}

// decideStructural decides whether schemas must be structural: always, but for objects that are not pruned, of a definition that was not, if it uses
// nothing that needs it.
func (v *validator) decideStructural(p *check.Part) {
	v.structural = true
	if !v.preservesUnknown() {
		return
	}
	defaults := anySchema(v.spec, func(s *internal.JSONSchemaProps) bool { return s.Default != nil })
	if defaults {
		p.Invalid("preserveUnknownFields", true, "must be false in order to use defaults in the schema")
	}
	v.structural = defaults || anySchema(v.spec, hasExtensions) || !v.lenient.notStructural()
}

func hasExtensions(s *internal.JSONSchemaProps) bool {
	return s.XEmbeddedResource || s.XPreserveUnknownFields != nil || s.XIntOrString || len(s.XListMapKeys) > 0 || s.XListType != nil || len(s.XValidations) > 0
}

func (v *validator) validateVersions(p *check.Part) {
	storage, unique := 0, true
	seen := map[string]bool{}
	for i := range v.spec.Versions {
		version := &v.spec.Versions[i]
		if version.Storage {
			storage++
		}
		unique = unique && !seen[version.Name]
		seen[version.Name] = true
		item := p.Item("versions", i)
		mustBeLabel(item, "name", version.Name)
		v.validateVersion(item, version)
	}
	if !unique {
		p.Invalid("versions", v.spec.Versions, "must contain unique version names")
	}
	if storage != 1 {
		p.Invalid("versions", v.spec.Versions, "must have exactly one version marked as storage version")
	}
	if v.spec.Version != "" {
		mustBeLabel(p, "version", v.spec.Version)
	}
}

// validateSharedParts validates what is the same in all versions, which the internal form has once.
func (v *validator) validateSharedParts(p *check.Part) {
	s := v.spec
	schema := v.newSchema(s.Validation, s.Version)
	schema.validate(p.Child("validation"), s.Validation, v.anyStatus())
	validateSubresources(p.Child("subresources"), s.Subresources)
	for i := range s.AdditionalPrinterColumns {
		validateColumn(p.Item("additionalPrinterColumns", i), &s.AdditionalPrinterColumns[i])
	}
	if len(s.SelectableFields) == 0 {
		return
	}
	if s.Validation == nil {
		p.Invalid("selectableFields", "", "may only be set when validations.schema is included")
		return
	}
	v.validateSelectableFields(p, s.SelectableFields, schema, "")
}

// anyStatus reports whether a version has a status subresource.
func (v *validator) anyStatus() bool {
	return hasStatus(v.spec.Subresources) || slices.ContainsFunc(v.spec.Versions, func(version internal.CustomResourceDefinitionVersion) bool {
		return hasStatus(version.Subresources)
	})
}

func hasStatus(s *internal.CustomResourceSubresources) bool { return s != nil && s.Status != nil }

// reviewVersions are the versions of ConversionReview that the previous release understood.
var reviewVersions = []string{"v1", "v1beta1"}

func hasKnownReview(versions []string) bool {
	return slices.ContainsFunc(versions, func(v string) bool { return slices.Contains(reviewVersions, v) })
}

func (v *validator) validateConversion(p *check.Part, c *internal.CustomResourceConversion) {
	validateEnum(p, "strategy", c.Strategy, internal.NoneConverter, internal.WebhookConverter)
	if c.Strategy != internal.WebhookConverter {
		const detail = "should not be set when strategy is not set to Webhook"
		if c.WebhookClientConfig != nil {
			p.Forbidden("webhookClientConfig", detail)
		}
		if len(c.ConversionReviewVersions) > 0 {
			p.Forbidden("conversionReviewVersions", detail)
		}
		return
	}
	v.validateClient(p, c.WebhookClientConfig)
	v.validateReviewVersions(p, c.ConversionReviewVersions)
}

func (v *validator) validateClient(p *check.Part, c *internal.WebhookClientConfig) {
	client := p.Child("webhookClientConfig")
	if c == nil {
		client.Required("", "required when strategy is set to Webhook")
		return
	}
	switch {
	case (c.URL == nil) == (c.Service == nil):
		client.Required("", "exactly one of url or service is required")
	case c.URL != nil:
		webhook.URL(client, *c.URL)
	default:
		webhook.Service(client.Child("service"), c.Service.Name, c.Service.Namespace, c.Service.Port, c.Service.Path)
	}
	if err := webhook.CABundleError(c.CABundle); err != nil && !v.lenient.badCABundle() {
		client.Invalid("caBundle", c.CABundle, err.Error())
	}
}

func (v *validator) validateReviewVersions(p *check.Part, versions []string) {
	const name = "conversionReviewVersions"
	if len(versions) == 0 {
		p.Required(name, "")
		return
	}
	for i, version := range versions {
		item := p.Item(name, i)
		if slices.Contains(versions[:i], version) {
			item.Invalid("", version, "duplicate version")
			continue
		}
		item.Format("", version, validation.IsDNS1035Label)
	}
	if !hasKnownReview(versions) && !v.lenient.unknownReviews() {
		p.Invalid(name, versions, "must include at least one of "+strings.Join(reviewVersions, ", "))
	}
}
