package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
)

var Role = catalog.Resource[rbacv1.Role]{
	Group: group, Version: "v1", Kind: "Role", Plural: "roles", Namespaced: true,
	Name:                anyName,
	CreateOnUpdate:      true,
	UnconditionalUpdate: true,
	Validate:            validateRole,
	ValidateUpdate:      func(new, _ *rbacv1.Role) field.ErrorList { return validateRole(new) },
	Complete:            true,
}

var ClusterRole = catalog.Resource[rbacv1.ClusterRole]{
	Group: group, Version: "v1", Kind: "ClusterRole", Plural: "clusterroles",
	Name:                anyName,
	CreateOnUpdate:      true,
	UnconditionalUpdate: true,
	Validate:            func(r *rbacv1.ClusterRole) field.ErrorList { return validateClusterRole(r, nil) },
	ValidateUpdate:      validateClusterRole,
	Complete:            true,
}

func validateRole(r *rbacv1.Role) field.ErrorList {
	role := check.At(nil)
	validateRules(role, r.Rules, true)
	return role.Errors()
}

func validateClusterRole(r, old *rbacv1.ClusterRole) field.ErrorList {
	role := check.At(nil)
	validateRules(role, r.Rules, false)
	if r.AggregationRule == nil {
		return role.Errors()
	}
	selectors := r.AggregationRule.ClusterRoleSelectors
	p := role.Child("aggregationRule")
	p.Present("clusterRoleSelectors", len(selectors) > 0, "at least one clusterRoleSelector required if aggregationRule is non-nil")
	opts := metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: old != nil && hasInvalidSelector(old)}
	for i := range selectors {
		item := p.Item("clusterRoleSelectors", i)
		item.Selector("", &selectors[i], opts)
		if _, err := metav1.LabelSelectorAsSelector(&selectors[i]); err != nil {
			item.Invalid("", nil, "invalid label selector.")
		}
	}
	return role.Errors()
}

// hasInvalidSelector reports whether a role was stored with a selector that is invalid under today's rules.
func hasInvalidSelector(r *rbacv1.ClusterRole) bool {
	if r.AggregationRule == nil {
		return false
	}
	p := check.At(nil)
	for i := range r.AggregationRule.ClusterRoleSelectors {
		p.StrictSelector("", &r.AggregationRule.ClusterRoleSelectors[i])
	}
	return len(p.Errors()) > 0
}

func validateRules(role *check.Part, rules []rbacv1.PolicyRule, namespaced bool) {
	for i := range rules {
		r, p := &rules[i], role.Item("rules", i)
		p.Later().Present("verbs", len(r.Verbs) > 0, "")
		if len(r.NonResourceURLs) == 0 {
			p.Present("apiGroups", len(r.APIGroups) > 0, "resource rules must supply at least one api group")
			p.Present("resources", len(r.Resources) > 0, "resource rules must supply at least one resource")
			continue
		}
		if namespaced {
			p.Invalid("nonResourceURLs", r.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs")
		}
		if len(r.APIGroups)+len(r.Resources)+len(r.ResourceNames) > 0 {
			p.Invalid("nonResourceURLs", r.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs")
		}
	}
}
