package admissionregistration

import (
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
)

var ValidatingAdmissionPolicyBinding = catalog.Resource[admissionregistrationv1.ValidatingAdmissionPolicyBinding]{
	Group: group, Version: "v1", Kind: "ValidatingAdmissionPolicyBinding", Plural: "validatingadmissionpolicybindings", Categories: categories,
	AnyFinalizer: true,
	Name:         apivalidation.NameIsDNSSubdomain,
	Default: func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
		defaultMatchResources(b.Spec.MatchResources)
	},
	Changed: catalog.SpecChanged[admissionregistrationv1.ValidatingAdmissionPolicyBinding],
	Validate: func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
		spec := validateValidatingBinding(&b.Spec)
		notStatic(spec, b.Name)
		return spec.Errors()
	},
	ValidateUpdate: func(new, _ *admissionregistrationv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
		return validateValidatingBinding(&new.Spec).Errors()
	},
	Columns: bindingColumns(func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) (string, *admissionregistrationv1.ParamRef) {
		return b.Spec.PolicyName, b.Spec.ParamRef
	}),
	Complete: true,
}

var MutatingAdmissionPolicyBinding = catalog.Resource[admissionregistrationv1.MutatingAdmissionPolicyBinding]{
	Group: group, Version: "v1", Kind: "MutatingAdmissionPolicyBinding", Plural: "mutatingadmissionpolicybindings", Categories: categories,
	AnyFinalizer: true,
	Name:         apivalidation.NameIsDNSSubdomain,
	Default: func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) {
		defaultMatchResources(b.Spec.MatchResources)
	},
	Changed: catalog.SpecChanged[admissionregistrationv1.MutatingAdmissionPolicyBinding],
	Validate: func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) field.ErrorList {
		spec := validateMutatingBinding(&b.Spec)
		notStatic(spec, b.Name)
		return spec.Errors()
	},
	ValidateUpdate: func(new, _ *admissionregistrationv1.MutatingAdmissionPolicyBinding) field.ErrorList {
		return validateMutatingBinding(&new.Spec).Errors()
	},
	Columns: bindingColumns(func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) (string, *admissionregistrationv1.ParamRef) {
		return b.Spec.PolicyName, b.Spec.ParamRef
	}),
	Complete: true,
}

func validateValidatingBinding(s *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec) *check.Part {
	spec := check.At(field.NewPath("spec"))
	if s.PolicyName == "" {
		spec.Later().Required("policyName", "")
	} else {
		spec.Format("policyName", s.PolicyName, validation.IsDNS1123Subdomain)
	}
	validateParamRef(spec.Child("paramRef"), s.ParamRef)
	validateMatchResources(spec.Child("matchResources"), s.MatchResources)
	validateActions(spec, s.ValidationActions)
	return spec
}

func validateActions(spec *check.Part, actions []admissionregistrationv1.ValidationAction) {
	for i, action := range actions {
		item := spec.Item("validationActions", i)
		check.OneOf(item, "", action, admissionregistrationv1.Audit, admissionregistrationv1.Deny, admissionregistrationv1.Warn)
		if slices.Contains(actions[:i], action) {
			item.Add(field.Duplicate(item.Path(), action))
		}
	}
	if slices.Contains(actions, admissionregistrationv1.Deny) && slices.Contains(actions, admissionregistrationv1.Warn) {
		spec.Invalid("validationActions", actions, "must not contain both Deny and Warn (repeating the same validation failure "+
			"information in the API response and headers serves no purpose)")
	}
	spec.Later().Present("validationActions", len(actions) > 0, "")
}

func validateMutatingBinding(s *admissionregistrationv1.MutatingAdmissionPolicyBindingSpec) *check.Part {
	spec := check.At(field.NewPath("spec"))
	if s.PolicyName == "" {
		spec.Required("policyName", "")
	} else {
		spec.Format("policyName", s.PolicyName, validation.IsDNS1123Subdomain)
	}
	validateParamRef(spec.Child("paramRef"), s.ParamRef)
	if s.MatchResources != nil {
		resources := spec.Child("matchResources")
		validateMatchResources(resources, s.MatchResources)
		validateMutableOperations(resources, s.MatchResources)
	}
	return spec
}

// validateParamRef requires either a name or a selector, and parameterNotFoundAction.
func validateParamRef(p *check.Part, r *admissionregistrationv1.ParamRef) {
	if r == nil {
		return
	}
	const exclusive = "name and selector are mutually exclusive"
	if r.Name != "" {
		p.Format("name", r.Name, content.IsPathSegmentName)
		if r.Selector != nil {
			p.Forbidden("name", exclusive)
		}
	}
	if r.Selector != nil {
		p.StrictSelector("selector", r.Selector)
		if r.Name != "" {
			p.Forbidden("selector", exclusive)
		}
	}
	p.Present("", r.Name != "" || r.Selector != nil, "one of name or selector must be specified")
	if r.ParameterNotFoundAction == nil || *r.ParameterNotFoundAction == "" {
		p.Required("parameterNotFoundAction", "")
	} else {
		check.OneOf(p, "parameterNotFoundAction", *r.ParameterNotFoundAction, admissionregistrationv1.DenyAction, admissionregistrationv1.AllowAction)
	}
}

func bindingColumns[T any](of func(*T) (string, *admissionregistrationv1.ParamRef)) []catalog.Column[T] {
	return []catalog.Column[T]{
		catalog.NameColumn[T](),
		{Name: "PolicyName", Description: "PolicyName indicates the policy definition which the policy binding binded to",
			Cell: func(b *T, _ time.Time) any {
				policy, _ := of(b)
				return policy
			}},
		{Name: "ParamRef", Description: "ParamRef indicates the param resource which sets the configuration param",
			Cell: func(b *T, _ time.Time) any {
				_, ref := of(b)
				return paramName(ref)
			}},
		catalog.AgeColumn[T](),
	}
}

func paramName(r *admissionregistrationv1.ParamRef) string {
	switch {
	case r == nil:
	case r.Name != "" && r.Namespace != "":
		return r.Namespace + "/" + r.Name
	case r.Name != "":
		return "*/" + r.Name // in every namespace, if it has one
	case r.Selector != nil:
		return r.Selector.String()
	}
	return "<unset>"
}
