package storage

import (
	"maps"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
)

// VolumeAttributesClass declares sets of attributes that a volume can get, also while it is in use.
var VolumeAttributesClass = catalog.Resource[storagev1.VolumeAttributesClass]{
	Group: group, Version: version, Kind: "VolumeAttributesClass", Plural: "volumeattributesclasses", Short: []string{"vac"},
	Deletion:            catalog.Deletion[storagev1.VolumeAttributesClass]{ReturnsObject: true},
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Validate: func(c *storagev1.VolumeAttributesClass) field.ErrorList {
		at := check.At(nil)
		checkAttributesClass(at, c)
		return at.Errors()
	},
	ValidateUpdate: func(new, old *storagev1.VolumeAttributesClass) field.ErrorList {
		at := check.At(nil)
		if new.DriverName != old.DriverName {
			at.Forbidden("driverName", "updates to driverName are forbidden.")
		}
		if !maps.Equal(new.Parameters, old.Parameters) {
			at.Forbidden("parameters", "updates to parameters are forbidden.")
		}
		checkAttributesClass(at, new)
		return at.Errors()
	},
	Columns: []catalog.Column[storagev1.VolumeAttributesClass]{
		catalog.NameColumn[storagev1.VolumeAttributesClass](),
		{Name: "DriverName", Description: storagev1.VolumeAttributesClass{}.SwaggerDoc()["driverName"],
			Cell: func(c *storagev1.VolumeAttributesClass, _ time.Time) any { return c.DriverName }},
		catalog.AgeColumn[storagev1.VolumeAttributesClass](),
	},
	Complete: true,
}

func checkAttributesClass(at *check.Part, c *storagev1.VolumeAttributesClass) {
	at.Present("driverName", c.DriverName != "", "")
	checkDriver(at, "driverName", c.DriverName)
	checkParameters(at, c.Parameters)
	at.Present("parameters", len(c.Parameters) > 0, "must contain at least one key/value pair")
}
