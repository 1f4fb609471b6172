package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/quantity"
)

var LimitRange = catalog.Resource[corev1.LimitRange]{
	Version: "v1", Kind: "LimitRange", Plural: "limitranges", Short: []string{"limits"}, Namespaced: true,
	Name:                validation.NameIsDNSSubdomain,
	CreateOnUpdate:      true,
	UnconditionalUpdate: true,
	Default:             defaultLimitRange,
	PrepareCreate: func(l *corev1.LimitRange, _ catalog.Request) {
		if l.Name == "" { // allowed here alone
			l.Name = string(l.UID)
		}
	},
	Validate:       validateLimitRange,
	ValidateUpdate: func(new, _ *corev1.LimitRange) field.ErrorList { return validateLimitRange(new) },
	Complete:       true,
}

func defaultLimitRange(l *corev1.LimitRange) {
	for i := range l.Spec.Limits {
		item := &l.Spec.Limits[i]
		if item.Type == corev1.LimitTypeContainer {
			// The bounds imply the missing defaults.
			item.Default = withMissing(item.Default, item.Max)
			item.DefaultRequest = withMissing(item.DefaultRequest, item.Default)
			item.DefaultRequest = withMissing(item.DefaultRequest, item.Min)
		}
		for _, list := range []corev1.ResourceList{item.Max, item.Min, item.Default, item.DefaultRequest, item.MaxLimitRequestRatio} {
			quantity.RoundUp(list)
		}
	}
}

// withMissing adds to a list the amounts of others that it lacks.
func withMissing(list, others corev1.ResourceList) corev1.ResourceList {
	for name, q := range others {
		if _, ok := list[name]; ok {
			continue
		}
		if list == nil {
			list = make(corev1.ResourceList, len(others))
		}
		list[name] = q.DeepCopy()
	}
	return list
}

func validateLimitRange(l *corev1.LimitRange) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "limits")
	for i := range l.Spec.Limits {
		item, itemPath := &l.Spec.Limits[i], path.Index(i)
		errs = append(errs, validateLimitType(item.Type, itemPath.Child("type"))...)
		if slices.ContainsFunc(l.Spec.Limits[:i], func(o corev1.LimitRangeItem) bool { return o.Type == item.Type }) {
			errs = append(errs, field.Duplicate(itemPath.Child("type"), item.Type))
		}
		errs = append(errs, validateLimitNames(item, itemPath)...)
		for _, name := range limitedNames(item) {
			errs = append(errs, validateLimits(name, item, itemPath)...)
		}
	}
	return errs
}

func validateLimitType(t corev1.LimitType, path *field.Path) field.ErrorList {
	switch t {
	case corev1.LimitTypePod, corev1.LimitTypeContainer, corev1.LimitTypePersistentVolumeClaim:
		return nil
	}
	var errs field.ErrorList
	for _, msg := range utilvalidation.IsQualifiedName(string(t)) {
		errs = append(errs, field.Invalid(path, t, msg))
	}
	if len(errs) == 0 && !strings.Contains(string(t), "/") {
		errs = append(errs, field.Invalid(path, t, "must be a standard limit type or fully qualified"))
	}
	return errs
}

// validateLimitNames checks which resources an item may limit, given what it applies to.
func validateLimitNames(item *corev1.LimitRangeItem, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	check := func(part string, list corev1.ResourceList) {
		rule := quantity.Name
		if item.Type == corev1.LimitTypePod || item.Type == corev1.LimitTypeContainer {
			rule = quantity.ContainerName
		}
		for _, name := range quantity.SortedNames(list, nil) {
			errs = append(errs, rule(name, path.Child(part).Key(string(name)))...)
		}
	}
	check("max", item.Max)
	check("min", item.Min)
	if item.Type == corev1.LimitTypePod {
		const msg = "may not be specified when `type` is 'Pod'"
		if len(item.Default) > 0 {
			errs = append(errs, field.Forbidden(path.Child("default"), msg))
		}
		if len(item.DefaultRequest) > 0 {
			errs = append(errs, field.Forbidden(path.Child("defaultRequest"), msg))
		}
	} else {
		check("default", item.Default)
		check("defaultRequest", item.DefaultRequest)
	}
	if item.Type == corev1.LimitTypePersistentVolumeClaim {
		_, min := item.Min[corev1.ResourceStorage]
		_, max := item.Max[corev1.ResourceStorage]
		if !min && !max {
			errs = append(errs, field.Required(path.Child("limits"),
				"either minimum or maximum storage value is required, but neither was provided"))
		}
	}
	check("maxLimitRequestRatio", item.MaxLimitRequestRatio)
	return errs
}

// limitedNames returns the names of the resources in an item. A pod has no defaults, so those of a Pod item are ignored.
func limitedNames(item *corev1.LimitRangeItem) []corev1.ResourceName {
	lists := []corev1.ResourceList{item.Max, item.Min, item.MaxLimitRequestRatio}
	if item.Type != corev1.LimitTypePod {
		lists = append(lists, item.Default, item.DefaultRequest)
	}
	all := corev1.ResourceList{}
	for _, list := range lists {
		for name := range list {
			all[name] = resource.Quantity{}
		}
	}
	return quantity.SortedNames(all, nil)
}

// limit is one bound or default of a resource, if there is one.
type limit struct {
	field, word string // its field, and its name in error messages
	q           resource.Quantity
	set         bool
}

// validateLimits checks that the bounds and defaults for one resource agree with each other.
func validateLimits(name corev1.ResourceName, item *corev1.LimitRangeItem, path *field.Path) field.ErrorList {
	get := func(fieldName, word string, list corev1.ResourceList) limit {
		q, ok := list[name]
		return limit{fieldName, word, q, ok}
	}
	min, max := get("min", "min", item.Min), get("max", "max", item.Max)
	def, request := get("default", "default", item.Default), get("defaultRequest", "default request", item.DefaultRequest)
	ratio := get("maxLimitRequestRatio", "ratio", item.MaxLimitRequestRatio)
	if item.Type == corev1.LimitTypePod {
		def.set, request.set = false, false
	}
	defLimit := def
	defLimit.word = "default limit"

	var errs field.ErrorList
	invalid := func(at, shown limit, format string, args ...any) {
		errs = append(errs, field.Invalid(path.Child(at.field).Key(string(name)), shown.q, fmt.Sprintf(format, args...)))
	}
	for _, order := range []struct{ low, high, at, shown limit }{
		{min, max, min, min},
		{min, request, request, request},
		{request, max, request, request},
		{request, defLimit, request, request},
		{min, def, def, min},
		{def, max, def, max},
	} {
		if order.low.set && order.high.set && order.low.q.Cmp(order.high.q) > 0 {
			invalid(order.at, order.shown, "%s value %s is greater than %s value %s",
				order.low.word, order.low.q.String(), order.high.word, order.high.q.String())
		}
	}
	if ratio.set && ratio.q.CmpInt64(1) < 0 {
		invalid(ratio, ratio, "ratio %s is less than 1", ratio.q.String())
	}
	if ratio.set && min.set && max.set {
		if asked, possible := compareRatio(ratio.q, max.q, min.q); asked > possible {
			invalid(ratio, ratio, "ratio %s is greater than max/min = %f", ratio.q.String(), possible)
		}
	}
	// The request of a resource that cannot be overcommitted must equal its limit.
	if def.set && request.set && !quantity.IsOvercommitAllowed(name) && def.q.Cmp(request.q) != 0 {
		invalid(request, request, "default value %s must equal to defaultRequest value %s in %s",
			def.q.String(), request.q.String(), name)
	}
	return errs
}

// compareRatio returns the requested ratio and the largest that max and min allow, in thousandths as far as they fit.
func compareRatio(ratio, max, min resource.Quantity) (asked, possible float64) {
	if ratio.Value() < resource.MaxMilliValue && max.Value() < resource.MaxMilliValue && min.Value() < resource.MaxMilliValue {
		return float64(ratio.MilliValue()) / 1000, float64(max.MilliValue()) / float64(min.MilliValue())
	}
	return float64(ratio.Value()), float64(max.Value()) / float64(min.Value())
}
