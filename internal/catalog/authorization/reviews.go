package authorization

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
)

// Resources returns the resources of the group.
func Resources() []catalog.Declaration {
	return []catalog.Declaration{LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview}
}

const group = "authorization.k8s.io"

var LocalSubjectAccessReview = catalog.Resource[authorizationv1.LocalSubjectAccessReview]{
	Group: group, Version: "v1", Kind: "LocalSubjectAccessReview", Plural: "localsubjectaccessreviews", Namespaced: true,
	Virtual: true, Verbs: []string{"create"},
	Validate: func(r *authorizationv1.LocalSubjectAccessReview) field.ErrorList {
		root := check.At(nil)
		validateSubjectReview(root, &r.Spec)
		validateMeta(root, r.ObjectMeta, r.Namespace, "must be empty except for namespace")
		if a := r.Spec.ResourceAttributes; a != nil && a.Namespace != r.Namespace {
			root.Child("spec").Child("resourceAttributes").Invalid("namespace", a.Namespace, "must match metadata.namespace")
		}
		if a := r.Spec.NonResourceAttributes; a != nil {
			root.Child("spec").Invalid("nonResourceAttributes", check.Internal(a), "disallowed on this kind of request")
		}
		return root.Errors()
	},
	Complete: true,
}

var SelfSubjectAccessReview = catalog.Resource[authorizationv1.SelfSubjectAccessReview]{
	Group: group, Version: "v1", Kind: "SelfSubjectAccessReview", Plural: "selfsubjectaccessreviews",
	Virtual: true, Verbs: []string{"create"},
	Validate: func(r *authorizationv1.SelfSubjectAccessReview) field.ErrorList {
		root := check.At(nil)
		validateOneKind(root.Child("spec"), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
		validateAttributes(root.Child("spec"), r.Spec.ResourceAttributes)
		validateMeta(root, r.ObjectMeta, "", "must be empty")
		return root.Errors()
	},
	Complete: true,
}

var SelfSubjectRulesReview = catalog.Resource[authorizationv1.SelfSubjectRulesReview]{
	Group: group, Version: "v1", Kind: "SelfSubjectRulesReview", Plural: "selfsubjectrulesreviews",
	Virtual: true, Verbs: []string{"create"},
	Complete: true,
}

var SubjectAccessReview = catalog.Resource[authorizationv1.SubjectAccessReview]{
	Group: group, Version: "v1", Kind: "SubjectAccessReview", Plural: "subjectaccessreviews",
	Virtual: true, Verbs: []string{"create"},
	Validate: func(r *authorizationv1.SubjectAccessReview) field.ErrorList {
		root := check.At(nil)
		validateSubjectReview(root, &r.Spec)
		validateMeta(root, r.ObjectMeta, "", "must be empty")
		return root.Errors()
	},
	Complete: true,
}

func validateSubjectReview(root *check.Part, s *authorizationv1.SubjectAccessReviewSpec) {
	spec := root.Child("spec")
	validateOneKind(spec, s.ResourceAttributes, s.NonResourceAttributes)
	if s.User == "" && len(s.Groups) == 0 {
		spec.Invalid("user", s.User, "at least one of user or group must be specified")
	}
	validateAttributes(spec, s.ResourceAttributes)
}

// validateOneKind requires either resource attributes or non-resource attributes.
func validateOneKind(spec *check.Part, resource *authorizationv1.ResourceAttributes, other *authorizationv1.NonResourceAttributes) {
	if (resource == nil) == (other == nil) {
		spec.Invalid("", check.Internal(other), "exactly one of nonResourceAttributes or resourceAttributes must be specified")
	}
}

// validateMeta requires empty metadata, except for a namespace.
func validateMeta(root *check.Part, meta metav1.ObjectMeta, namespace, detail string) {
	bare := meta
	bare.ManagedFields = nil
	if !apiequality.Semantic.DeepEqual(metav1.ObjectMeta{Namespace: namespace}, bare) {
		root.Invalid("metadata", meta, detail)
	}
}

// validateAttributes validates the selectors of resource attributes. Operators of later versions are allowed: they only narrow a
// selection, so that ignoring them is safe.
func validateAttributes(spec *check.Part, a *authorizationv1.ResourceAttributes) {
	if a == nil {
		return
	}
	if s := a.FieldSelector; s != nil {
		p := spec.Child("resourceAttributes").Child("fieldSelector")
		validateSelector(p, s.RawSelector, len(s.Requirements))
		for i, r := range s.Requirements {
			p.Add(metav1validation.ValidateFieldSelectorRequirement(r,
				metav1validation.FieldSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}, p.Path("requirements").Index(i))...)
		}
	}
	if s := a.LabelSelector; s != nil {
		p := spec.Child("resourceAttributes").Child("labelSelector")
		validateSelector(p, s.RawSelector, len(s.Requirements))
		for i, r := range s.Requirements {
			p.Add(metav1validation.ValidateLabelSelectorRequirement(r,
				metav1validation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}, p.Path("requirements").Index(i))...)
		}
	}
}

// validateSelector requires a selector in exactly one form, either as text or as requirements.
func validateSelector(p *check.Part, raw string, requirements int) {
	switch {
	case raw != "" && requirements > 0:
		p.Invalid("rawSelector", raw, "may not specified at the same time as requirements")
	case raw == "" && requirements == 0:
		p.Required("requirements", "when "+p.Path().String()+" is specified, requirements or rawSelector is required")
	}
}
