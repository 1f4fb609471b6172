package storage

import (
	"fmt"
	"maps"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
	"skiff/internal/catalog/nodeselector"
	"skiff/internal/catalog/quantity"
)

// CSIStorageCapacity declares how much storage of a class is available to a set of nodes.
var CSIStorageCapacity = catalog.Resource[storagev1.CSIStorageCapacity]{
	Group: group, Version: version, Kind: "CSIStorageCapacity", Plural: "csistoragecapacities", Namespaced: true,
	Name: validation.NameIsDNSSubdomain,
	Validate: func(c *storagev1.CSIStorageCapacity) field.ErrorList {
		return validateCapacity(c, metav1validation.LabelSelectorValidationOptions{})
	},
	ValidateUpdate: validateCapacityUpdate,
	Warnings:       capacityWarnings,
	Complete:       true,
}

func validateCapacity(c *storagev1.CSIStorageCapacity, opts metav1validation.LabelSelectorValidationOptions) field.ErrorList {
	at := check.At(nil)
	at.Selector("nodeTopology", c.NodeTopology, opts)
	at.Format("storageClassName", c.StorageClassName, func(name string) []string { return validation.NameIsDNSSubdomain(name, false) })
	if c.Capacity != nil {
		at.Add(quantity.Nonnegative(*c.Capacity, at.Path("capacity"))...)
	}
	return at.Errors()
}

func validateCapacityUpdate(new, old *storagev1.CSIStorageCapacity) field.ErrorList {
	was := metav1validation.ValidateLabelSelector(old.NodeTopology, metav1validation.LabelSelectorValidationOptions{}, nil)
	errs := validateCapacity(new, metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: len(was) > 0})
	if !apiequality.Semantic.DeepEqual(new.NodeTopology, old.NodeTopology) {
		errs = append(errs, field.Invalid(field.NewPath("nodeTopology"), new.NodeTopology, validation.FieldImmutableErrorMsg))
	}
	if new.StorageClassName != old.StorageClassName {
		errs = append(errs, field.Invalid(field.NewPath("storageClassName"), new.StorageClassName, validation.FieldImmutableErrorMsg))
	}
	return errs
}

func capacityWarnings(c, _ *storagev1.CSIStorageCapacity) []string {
	if c.NodeTopology == nil {
		return nil
	}
	var warnings []string
	for i, e := range c.NodeTopology.MatchExpressions {
		if msg := nodeselector.DeprecatedLabel(e.Key); msg != "" {
			warnings = append(warnings, fmt.Sprintf("nodeTopology.matchExpressions[%d].key: %s is %s", i, e.Key, msg))
		}
	}
	for _, label := range slices.Sorted(maps.Keys(c.NodeTopology.MatchLabels)) {
		if msg := nodeselector.DeprecatedLabel(label); msg != "" {
			warnings = append(warnings, fmt.Sprintf("nodeTopology.matchLabels.%s: %s", label, msg))
		}
	}
	return warnings
}
