package storage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
	"skiff/internal/catalog/nodeselector"
)

// StorageClass declares storage classes, which decide how volumes are provisioned for claims.
var StorageClass = catalog.Resource[storagev1.StorageClass]{
	Group: group, Version: version, Kind: "StorageClass", Plural: "storageclasses", Short: []string{"sc"},
	Deletion:            catalog.Deletion[storagev1.StorageClass]{ReturnsObject: true},
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Default: func(c *storagev1.StorageClass) {
		fill(&c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
		fill(&c.VolumeBindingMode, storagev1.VolumeBindingImmediate)
	},
	Validate: func(c *storagev1.StorageClass) field.ErrorList {
		at := check.At(nil)
		checkStorageClass(at, c)
		at.Present("provisioner", c.Provisioner != "", "")
		return at.Errors()
	},
	ValidateUpdate: validateStorageClassUpdate,
	Warnings:       storageClassWarnings,
	Columns:        storageClassColumns,
	Arrange:        markDefault,
	Complete:       true,
}

// checkStorageClass validates a class, but does not require a provisioner.
func checkStorageClass(at *check.Part, c *storagev1.StorageClass) {
	checkDriver(at, "provisioner", c.Provisioner)
	checkParameters(at, c.Parameters)
	if p := c.ReclaimPolicy; p != nil && *p != "" {
		check.OneOf(at, "reclaimPolicy", *p, corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain)
	}
	if c.VolumeBindingMode == nil {
		at.Required("volumeBindingMode", "")
	} else {
		check.OneOf(at, "volumeBindingMode", *c.VolumeBindingMode, storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer)
	}
	for i := range c.AllowedTopologies {
		checkTopology(at.Item("allowedTopologies", i), c.AllowedTopologies, i)
	}
}

func checkDriver(at *check.Part, name, driver string) {
	if driver != "" {
		at.Format(name, strings.ToLower(driver), utilvalidation.IsQualifiedName)
	}
}

const (
	maxParameters    = 512
	maxParameterSize = 256 << 10
)

func checkParameters(at *check.Part, parameters map[string]string) {
	if len(parameters) > maxParameters {
		at.Add(field.TooLong(at.Path("parameters"), "", maxParameters))
		return
	}
	size := 0
	for key, value := range parameters {
		if key == "" {
			at.Invalid("parameters", key, "field can not be empty.")
		}
		size += len(key) + len(value)
	}
	if size > maxParameterSize {
		at.Add(field.TooLong(at.Path("parameters"), "", maxParameterSize))
	}
}

// checkTopology validates one of a class's topologies, which must not equal an earlier one.
func checkTopology(at *check.Part, all []corev1.TopologySelectorTerm, i int) {
	keys := map[string]struct{}{}
	for j, r := range all[i].MatchLabelExpressions {
		at := at.Item("matchLabelExpressions", j)
		at.Present("values", len(r.Values) > 0, "")
		for k, value := range r.Values {
			if slices.Contains(r.Values[:k], value) {
				at.Add(field.Duplicate(at.Path("values").Index(k), value))
			}
		}
		at.Add(metav1validation.ValidateLabelName(r.Key, at.Path("key"))...)
		if _, taken := keys[r.Key]; taken {
			at.Add(field.Duplicate(at.Path("key"), r.Key))
		}
		keys[r.Key] = struct{}{}
	}
	for _, earlier := range all[:i] {
		if sameTopology(earlier, all[i]) {
			at.Add(field.Duplicate(at.Path("matchLabelExpressions"), ""))
		}
	}
	if len(keys) == 0 {
		// Upstream refuses an empty term with this error, even if it is the only one.
		at.Add(field.Duplicate(at.Path("matchLabelExpressions"), ""))
	}
}

// sameTopology compares terms as sets: neither the order of keys nor that of values counts.
func sameTopology(a, b corev1.TopologySelectorTerm) bool {
	return maps.EqualFunc(valueSets(a), valueSets(b), func(a, b map[string]bool) bool { return maps.Equal(a, b) })
}

func valueSets(t corev1.TopologySelectorTerm) map[string]map[string]bool {
	sets := map[string]map[string]bool{}
	for _, r := range t.MatchLabelExpressions {
		values := map[string]bool{}
		for _, v := range r.Values {
			values[v] = true
		}
		sets[r.Key] = values
	}
	return sets
}

func validateStorageClassUpdate(new, old *storagev1.StorageClass) field.ErrorList {
	at := check.At(nil)
	checkStorageClass(at, new)
	if new.Provisioner != old.Provisioner {
		at.Present("provisioner", new.Provisioner != "", "")
		immutable(at, "provisioner")
	}
	if !maps.Equal(new.Parameters, old.Parameters) {
		immutable(at, "parameters")
	}
	if !ptr.Equal(new.ReclaimPolicy, old.ReclaimPolicy) {
		immutable(at, "reclaimPolicy")
	}
	if !ptr.Equal(new.VolumeBindingMode, old.VolumeBindingMode) {
		immutable(at, "volumeBindingMode")
	}
	return at.Errors()
}

func immutable(at *check.Part, name string) { at.Invalid(name, nil, validation.FieldImmutableErrorMsg) }

func storageClassWarnings(c, _ *storagev1.StorageClass) []string {
	var warnings []string
	for i, term := range c.AllowedTopologies {
		for j, r := range term.MatchLabelExpressions {
			if msg := nodeselector.DeprecatedLabel(r.Key); msg != "" {
				warnings = append(warnings, fmt.Sprintf("allowedTopologies[%d].matchLabelExpressions[%d].key: %s", i, j, msg))
			}
		}
	}
	return warnings
}

var storageClassDoc = storagev1.StorageClass{}.SwaggerDoc()

// markDefault marks the default class in its name cell.
func markDefault(rows []catalog.Row[storagev1.StorageClass]) {
	classes := make([]*storagev1.StorageClass, len(rows))
	for i, row := range rows {
		classes[i] = row.Object
	}
	if class := defaultClass(classes); class != nil {
		rows[slices.Index(classes, class)].Cells[0] = class.Name + " (default)"
	}
}

// defaultClass returns the class of claims that name none: of those marked as default, the newest, or the first by name if several were created
// in the same second. It is nil if there is none.
func defaultClass(classes []*storagev1.StorageClass) (class *storagev1.StorageClass) {
	for _, c := range classes {
		if c.Annotations[isDefault] != "true" && c.Annotations[isDefaultBeta] != "true" {
			continue
		}
		if class == nil || cmp.Or(c.CreationTimestamp.Compare(class.CreationTimestamp.Time), strings.Compare(class.Name, c.Name)) > 0 {
			class = c
		}
	}
	return class
}

const (
	isDefault     = "storageclass.kubernetes.io/is-default-class"
	isDefaultBeta = "storageclass.beta.kubernetes.io/is-default-class"
)

var storageClassColumns = []catalog.Column[storagev1.StorageClass]{
	catalog.NameColumn[storagev1.StorageClass](),
	{Name: "Provisioner", Description: storageClassDoc["provisioner"], Cell: func(c *storagev1.StorageClass, _ time.Time) any {
		return c.Provisioner
	}},
	{Name: "ReclaimPolicy", Description: storageClassDoc["reclaimPolicy"], Cell: func(c *storagev1.StorageClass, _ time.Time) any {
		return string(ptr.Deref(c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete))
	}},
	{Name: "VolumeBindingMode", Description: storageClassDoc["volumeBindingMode"], Cell: func(c *storagev1.StorageClass, _ time.Time) any {
		return string(ptr.Deref(c.VolumeBindingMode, storagev1.VolumeBindingImmediate))
	}},
	{Name: "AllowVolumeExpansion", Description: storageClassDoc["allowVolumeExpansion"], Cell: func(c *storagev1.StorageClass, _ time.Time) any {
		return ptr.Deref(c.AllowVolumeExpansion, false)
	}},
	catalog.AgeColumn[storagev1.StorageClass](),
}
