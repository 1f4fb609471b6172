package resource

import (
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
)

// DeviceClass declares device classes: selectors for devices, and their configuration.
var DeviceClass = catalog.Resource[resourcev1.DeviceClass]{
	Group: group, Version: version, Kind: "DeviceClass", Plural: "deviceclasses",
	Deletion:            catalog.Deletion[resourcev1.DeviceClass]{ReturnsObject: true},
	Name:                check.LongName,
	UnconditionalUpdate: true,
	Changed:             catalog.SpecChanged[resourcev1.DeviceClass],
	Validate:            func(c *resourcev1.DeviceClass) field.ErrorList { return validateClass(c, nil) },
	ValidateUpdate:      func(new, old *resourcev1.DeviceClass) field.ErrorList { return validateClass(new, &old.Spec) },
	Columns:             []catalog.Column[resourcev1.DeviceClass]{catalog.NameColumn[resourcev1.DeviceClass](), catalog.AgeColumn[resourcev1.DeviceClass]()},
	Complete:            true,
}

// validateClass validates a class; what did not change since old need not obey limits that were introduced later.
func validateClass(c *resourcev1.DeviceClass, old *resourcev1.DeviceClassSpec) field.ErrorList {
	spec := at(field.NewPath("spec"))
	stored := old != nil && apiequality.Semantic.DeepEqual(c.Spec.Selectors, old.Selectors)
	checkSelectors(spec, c.Spec.Selectors, stored)
	stored = old != nil && apiequality.Semantic.DeepEqual(c.Spec.Config, old.Config)
	list(spec, "config", c.Spec.Config, resourcev1.DeviceConfigMaxSize, func(p part, c *resourcev1.DeviceClassConfiguration) {
		checkConfiguration(p, &c.DeviceConfiguration, stored)
	})
	if name := c.Spec.ExtendedResourceName; name != nil {
		declare(spec.declared, "extendedResourceName", name, validate.ExtendedResourceName)
	}
	return spec.errors()
}
