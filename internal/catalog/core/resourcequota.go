package core

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
	"skiff/internal/catalog/quantity"
)

var ResourceQuota = catalog.Resource[corev1.ResourceQuota]{
	Version: "v1", Kind: "ResourceQuota", Plural: "resourcequotas", Short: []string{"quota"}, Namespaced: true,
	Deletion:            catalog.Deletion[corev1.ResourceQuota]{ReturnsObject: true},
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Default: func(q *corev1.ResourceQuota) {
		quantity.RoundUp(q.Spec.Hard)
		quantity.RoundUp(q.Status.Hard)
		quantity.RoundUp(q.Status.Used)
	},
	Validate:       func(q *corev1.ResourceQuota) field.ErrorList { return validateQuotaSpec(&q.Spec) },
	ValidateUpdate: validateQuotaUpdate,
	Warnings:       quotaWarnings,
	Status: &catalog.Edit[corev1.ResourceQuota]{
		ValidateUpdate: func(new, _ *corev1.ResourceQuota) field.ErrorList {
			path := field.NewPath("status")
			return append(validateAmounts(new.Status.Hard, path.Child("hard")), validateAmounts(new.Status.Used, path.Child("used"))...)
		},
	},
	Columns: []catalog.Column[corev1.ResourceQuota]{
		catalog.NameColumn[corev1.ResourceQuota](),
		{Name: "Request", Description: "Request represents a minimum amount of cpu/memory that a container may consume.",
			Cell: func(q *corev1.ResourceQuota, _ time.Time) any { return formatUsage(q, false) }},
		{Name: "Limit", Description: "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.",
			Cell: func(q *corev1.ResourceQuota, _ time.Time) any { return formatUsage(q, true) }},
		catalog.AgeColumn[corev1.ResourceQuota](),
	},
	Complete: true,
}

func validateQuotaSpec(spec *corev1.ResourceQuotaSpec) field.ErrorList {
	errs := validateAmounts(spec.Hard, field.NewPath("spec", "hard"))
	errs = append(errs, validateScopes(spec)...)
	return append(errs, validateScopeSelector(spec)...)
}

func validateQuotaUpdate(new, old *corev1.ResourceQuota) field.ErrorList {
	errs := validateQuotaSpec(&new.Spec)
	if !sets.New(new.Spec.Scopes...).Equal(sets.New(old.Spec.Scopes...)) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "scopes"), new.Spec.Scopes, validation.FieldImmutableErrorMsg))
	}
	return errs
}

// validateAmounts validates the resource names and amounts of a quota.
func validateAmounts(list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range quantity.SortedNames(list, nil) {
		at := path.Key(string(name))
		errs = append(errs, quantity.QuotaName(name, at)...)
		errs = append(errs, quantity.ForResource(string(name), list[name], at)...)
	}
	return errs
}

var (
	podCounts  = []corev1.ResourceName{corev1.ResourcePods}
	podAmounts = []corev1.ResourceName{corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceLimitsCPU,
		corev1.ResourceLimitsMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory}
	claimAmounts = []corev1.ResourceName{corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage}

	// scopes maps every scope to the resources that a quota with it can limit.
	scopes = map[corev1.ResourceQuotaScope][]corev1.ResourceName{
		corev1.ResourceQuotaScopeTerminating:               podAmounts,
		corev1.ResourceQuotaScopeNotTerminating:            podAmounts,
		corev1.ResourceQuotaScopeBestEffort:                podCounts,
		corev1.ResourceQuotaScopeNotBestEffort:             podAmounts,
		corev1.ResourceQuotaScopePriorityClass:             podAmounts,
		corev1.ResourceQuotaScopeCrossNamespacePodAffinity: podAmounts,
		corev1.ResourceQuotaScopeVolumeAttributesClass:     claimAmounts,
	}

	// conflictingScopes are pairs of scopes that exclude each other.
	conflictingScopes = [][2]corev1.ResourceQuotaScope{
		{corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort},
		{corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating},
	}
)

// outOfScope returns the number of limited resources that the scope does not allow.
func outOfScope(scope corev1.ResourceQuotaScope, hard corev1.ResourceList) int {
	inScope, ok := scopes[scope]
	if !ok {
		return 0
	}
	n := 0
	for name := range hard {
		if quantity.IsStandardQuota(name) && !slices.Contains(inScope, name) {
			n++
		}
	}
	return n
}

func validateScopes(spec *corev1.ResourceQuotaSpec) field.ErrorList {
	p := check.At(field.NewPath("spec"))
	for _, scope := range spec.Scopes {
		if _, ok := scopes[scope]; !ok {
			p.Invalid("scopes", spec.Scopes, "unsupported scope")
		}
		for range outOfScope(scope, spec.Hard) {
			p.Invalid("scopes", spec.Scopes, "unsupported scope applied to resource")
		}
	}
	for _, pair := range conflictingScopes {
		if slices.Contains(spec.Scopes, pair[0]) && slices.Contains(spec.Scopes, pair[1]) {
			p.Invalid("scopes", spec.Scopes, "conflicting scopes")
		}
	}
	return p.Errors()
}

func validateScopeSelector(spec *corev1.ResourceQuotaSpec) field.ErrorList {
	if spec.ScopeSelector == nil {
		return nil
	}
	p := check.At(field.NewPath("spec", "scopeSelector", "matchExpressions"))
	named := sets.New[corev1.ResourceQuotaScope]()
	for _, req := range spec.ScopeSelector.MatchExpressions {
		named.Insert(req.ScopeName)
		if _, ok := scopes[req.ScopeName]; !ok {
			p.Invalid("scopeName", req.ScopeName, "unsupported scope")
		}
		for range outOfScope(req.ScopeName, spec.Hard) {
			p.Invalid("", check.Internal(spec.ScopeSelector), "unsupported scope applied to resource")
		}
		validateScopeOperator(p, &req)
	}
	for _, pair := range conflictingScopes {
		if named.HasAll(pair[0], pair[1]) {
			p.Invalid("", spec.Scopes, "conflicting scopes")
		}
	}
	return p.Errors()
}

// validateScopeOperator validates the operator for the scope: most scopes allow only Exists, without values.
func validateScopeOperator(p *check.Part, req *corev1.ScopedResourceSelectorRequirement) {
	switch req.ScopeName {
	case corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopeTerminating,
		corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		if req.Operator != corev1.ScopeSelectorOpExists {
			p.Invalid("operator", req.Operator, "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "+
				"ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or "+
				"ResourceQuotaScopeCrossNamespacePodAffinity")
		}
	}
	switch req.Operator {
	case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
		if len(req.Values) == 0 {
			p.Required("values", "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector")
		}
	case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
		if len(req.Values) != 0 {
			p.Invalid("values", req.Values, "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector")
		}
	default:
		p.Invalid("operator", req.Operator, "not a valid selector operator")
	}
}

// quotaWarnings warns of new quotas that allow more requests than limits.
func quotaWarnings(new, old *corev1.ResourceQuota) []string {
	if old != nil {
		return nil
	}
	var warnings []string
	for _, names := range [][]corev1.ResourceName{ // the limit, then the possible names of the request
		{corev1.ResourceLimitsCPU, corev1.ResourceRequestsCPU, corev1.ResourceCPU},
		{corev1.ResourceLimitsMemory, corev1.ResourceRequestsMemory, corev1.ResourceMemory},
		{"limits.storage", corev1.ResourceRequestsStorage},
		{corev1.ResourceLimitsEphemeralStorage, corev1.ResourceRequestsEphemeralStorage},
	} {
		limit, limited := new.Spec.Hard[names[0]]
		for _, name := range names[1:] {
			request, ok := new.Spec.Hard[name]
			if !ok {
				continue
			}
			if limited && request.Cmp(limit) > 0 {
				warnings = append(warnings, "ResourceQuota "+string(name)+" ("+request.String()+") should be less than "+
					string(names[0])+" ("+limit.String()+")")
			}
			break
		}
	}
	return warnings
}

// formatUsage returns the usage of each resource: of limits, or of all other resources.
func formatUsage(q *corev1.ResourceQuota, limits bool) string {
	var b strings.Builder
	for _, name := range quantity.SortedNames(q.Status.Hard, nil) {
		if strings.HasPrefix(string(name), "limits.") != limits {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		used, hard := q.Status.Used[name], q.Status.Hard[name]
		b.WriteString(string(name) + ": " + used.String() + "/" + hard.String())
	}
	return b.String()
}
