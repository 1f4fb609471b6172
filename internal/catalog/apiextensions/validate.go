package apiextensions

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	internal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

func validateCreate(d *definition) field.ErrorList { return validate(d, nil).Errors() }

func validateUpdate(new, old *definition) field.ErrorList { return validate(new, old).Errors() }

func validateStatusUpdate(new, _ *definition) field.ErrorList {
	root := check.At(nil)
	validateNames(root.Child("status").Child("acceptedNames"), &new.Status.AcceptedNames)
	return root.Errors()
}

// toInternal returns a definition in upstream's internal form.
func toInternal(d *definition) (*internal.CustomResourceDefinition, error) {
	converted := &internal.CustomResourceDefinition{}
	return converted, apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(d, converted, nil)
}

// validate validates a definition that is created, or updated if there is an old one.
func validate(d, old *definition) *check.Part {
	root := check.At(nil)
	converted, err := toInternal(d)
	if err != nil {
		root.Invalid("spec", field.OmitValueType{}, err.Error())
		return root
	}
	if old == nil {
		validateOwnName(root.Child("metadata"), d)
	}
	spec := root.Child("spec")
	v := &validator{spec: &converted.Spec, lenient: lenientTo(old)}
	v.validateSpec(spec)
	if old != nil {
		validateImmutable(spec, d, old)
	}
	status := root.Child("status")
	validateNames(status.Child("acceptedNames"), &d.Status.AcceptedNames)
	validateStoredVersions(status, d)
	validateApproval(root, d, old)
	if d.Spec.PreserveUnknownFields && (old == nil || !old.Spec.PreserveUnknownFields) {
		spec.Invalid("preserveUnknownFields", true,
			"cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead")
	}
	return root
}

// validateOwnName requires that a definition is named after its resource and group.
func validateOwnName(meta *check.Part, d *definition) {
	const detail = `must be spec.names.plural+"."+spec.group`
	required := d.Spec.Names.Plural + "." + d.Spec.Group
	if d.GenerateName != "" && d.GenerateName != required {
		meta.Invalid("generateName", d.GenerateName, detail)
	}
	if d.Name != "" && d.Name != required {
		meta.Invalid("name", d.Name, detail)
	}
}

// validateImmutable forbids changes of what is part of the name, and of what stored objects depend on.
func validateImmutable(spec *check.Part, new, old *definition) {
	names := spec.Child("names")
	if apihelpers.IsCRDConditionTrue(old, apiextensionsv1.Established) {
		spec.Immutable("scope", new.Spec.Scope, old.Spec.Scope)
		names.Immutable("kind", new.Spec.Names.Kind, old.Spec.Names.Kind)
	}
	spec.Immutable("group", new.Spec.Group, old.Spec.Group)
	names.Immutable("plural", new.Spec.Names.Plural, old.Spec.Names.Plural)
}

func validateStoredVersions(status *check.Part, d *definition) {
	const name = "storedVersions"
	stored := d.Status.StoredVersions
	if len(stored) == 0 {
		status.Invalid(name, stored, "must have at least one stored version")
		return
	}
	declared := map[string]bool{}
	for i := range d.Spec.Versions {
		v := &d.Spec.Versions[i]
		// Upstream finds no stored version for the second of two versions of one name.
		if v.Storage && (declared[v.Name] || !slices.Contains(stored, v.Name)) {
			status.Invalid(name, stored, "must have the storage version "+v.Name)
		}
		declared[v.Name] = true
	}
	for i, v := range stored {
		if !declared[v] && !slices.Contains(stored[i+1:], v) {
			status.Item(name, i).Invalid("", v, fmt.Sprintf("missing from spec.versions; %[1]s was previously a storage version, and must remain in "+
				"spec.versions until a storage migration ensures no data remains persisted in %[1]s and removes %[1]s from status.storedVersions", v))
		}
	}
}

// validateApproval requires that definitions in groups of the Kubernetes community say who approved them. What an update leaves as it was is
// accepted.
func validateApproval(root *check.Part, d, old *definition) {
	if !apihelpers.IsProtectedCommunityGroup(d.Spec.Group) {
		return
	}
	state, reason := apihelpers.GetAPIApprovalState(d.Annotations)
	if old != nil {
		if before, _ := apihelpers.GetAPIApprovalState(old.Annotations); before == state {
			return
		}
	}
	path := root.Path("metadata", "annotations").Key(apiextensionsv1.KubeAPIApprovedAnnotation)
	switch state {
	case apihelpers.APIApproved, apihelpers.APIApprovalBypassed:
	case apihelpers.APIApprovalMissing:
		root.Add(field.Required(path, reason))
	default:
		root.Add(field.Invalid(path, d.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation], reason))
	}
}

func validateNames(p *check.Part, n *apiextensionsv1.CustomResourceDefinitionNames) {
	label(p, "plural", n.Plural, n.Plural, "")
	label(p, "singular", n.Singular, n.Singular, "")
	const anyCase = "may have mixed case, but should otherwise match: "
	label(p, "kind", n.Kind, strings.ToLower(n.Kind), anyCase)
	label(p, "listKind", n.ListKind, strings.ToLower(n.ListKind), anyCase)
	for i, name := range n.ShortNames {
		mustBeLabel(p.Item("shortNames", i), "", name)
	}
	if n.Kind != "" && n.Kind == n.ListKind {
		p.Invalid("listKind", n.ListKind, "kind and listKind may not be the same")
	}
	for i, name := range n.Categories {
		mustBeLabel(p.Item("categories", i), "", name)
	}
}

// label adds an error for a name that is set and whose form is no DNS label.
func label(p *check.Part, name, value, form, prefix string) {
	if value == "" {
		return
	}
	if errs := validation.IsDNS1035Label(form); len(errs) > 0 {
		p.Invalid(name, value, prefix+strings.Join(errs, ","))
	}
}

func mustBeLabel(p *check.Part, name, value string) {
	if errs := validation.IsDNS1035Label(value); len(errs) > 0 {
		p.Invalid(name, value, strings.Join(errs, ","))
	}
}
