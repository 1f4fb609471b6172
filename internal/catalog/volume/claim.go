package volume

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"skiff/internal/catalog"
)

// PersistentVolumeClaim declares requests for persistent volumes.
var PersistentVolumeClaim = catalog.Resource[corev1.PersistentVolumeClaim]{
	Version: "v1", Kind: "PersistentVolumeClaim", Plural: "persistentvolumeclaims", Short: []string{"pvc"}, Namespaced: true,
	Deletion:            catalog.Deletion[corev1.PersistentVolumeClaim]{ReturnsObject: true},
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Default:             DefaultClaim,
	PrepareCreate:       prepareClaim,
	PrepareUpdate:       prepareClaimUpdate,
	Validate: func(c *corev1.PersistentVolumeClaim) field.ErrorList {
		return ValidateClaimSpec(&c.Spec, field.NewPath("spec"))
	},
	ValidateUpdate: validateClaimUpdate,
	Warnings:       claimWarnings,
	Status: &catalog.Edit[corev1.PersistentVolumeClaim]{
		PrepareUpdate:  prepareClaimStatus,
		ValidateUpdate: validateClaimStatus,
	},
	Columns:  claimColumns,
	Complete: true,
}

func prepareClaim(c *corev1.PersistentVolumeClaim, _ catalog.Request) {
	c.Status.Phase = corev1.ClaimPending
	dropForeignNamespace(&c.Spec)
	dropUnknownDataSource(&c.Spec)
	completeDataSources(&c.Spec)
}

func prepareClaimUpdate(new, old *corev1.PersistentVolumeClaim) {
	if old.Spec.DataSourceRef == nil {
		dropForeignNamespace(&new.Spec)
		if old.Spec.DataSource == nil {
			dropUnknownDataSource(&new.Spec)
		}
	}
	completeDataSources(&new.Spec)
}

// dropForeignNamespace removes a data source in another namespace, whose feature gate is off by default.
func dropForeignNamespace(spec *corev1.PersistentVolumeClaimSpec) {
	if ref := spec.DataSourceRef; ref != nil && ptr.Deref(ref.Namespace, "") != "" {
		spec.DataSourceRef = nil
	}
}

// dropUnknownDataSource removes a data source that is neither a claim nor a snapshot. Clients from before dataSourceRef
// expect such sources to be ignored.
func dropUnknownDataSource(spec *corev1.PersistentVolumeClaimSpec) {
	source := spec.DataSource
	if source == nil || spec.DataSourceRef != nil {
		return
	}
	group := ptr.Deref(source.APIGroup, "")
	if !(group == "" && source.Kind == "PersistentVolumeClaim" || group == "snapshot.storage.k8s.io" && source.Kind == "VolumeSnapshot") {
		spec.DataSource = nil
	}
}

// completeDataSources copies dataSource, the older field, to dataSourceRef, or the other way round, if one is missing.
func completeDataSources(spec *corev1.PersistentVolumeClaimSpec) {
	source, ref := spec.DataSource, spec.DataSourceRef
	switch {
	case source != nil && ref == nil:
		spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: clone(source.APIGroup), Kind: source.Kind, Name: source.Name}
	case source == nil && ref != nil && ptr.Deref(ref.Namespace, "") == "":
		spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: clone(ref.APIGroup), Kind: ref.Kind, Name: ref.Name}
	}
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// prepareClaimStatus drops fields whose feature gate is off by default.
func prepareClaimStatus(new, old *corev1.PersistentVolumeClaim) {
	if old.Status.HealthStatus == nil {
		new.Status.HealthStatus = nil
	}
}

func claimWarnings(c, _ *corev1.PersistentVolumeClaim) []string {
	var warnings []string
	if _, used := c.Annotations[corev1.BetaStorageClassAnnotation]; used {
		warnings = append(warnings, fmt.Sprintf(`metadata.annotations[%s]: deprecated since v1.8; use "storageClassName" attribute instead`, corev1.BetaStorageClassAnnotation))
	}
	return append(warnings, claimSpecWarnings(&c.Spec, field.NewPath("spec"))...)
}

// claimSpecWarnings returns the warnings for the spec of a claim.
func claimSpecWarnings(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) []string {
	var warnings []string
	for _, part := range []struct {
		name string
		list corev1.ResourceList
	}{{"requests", spec.Resources.Requests}, {"limits", spec.Resources.Limits}} {
		if size := part.list[corev1.ResourceStorage]; size.MilliValue()%1000 != 0 {
			warnings = append(warnings, fmt.Sprintf("%s: fractional byte value %q is invalid, must be an integer",
				path.Child("resources", part.name).Key("storage"), size.String()))
		}
	}
	return warnings
}

var (
	claimSpecDoc   = corev1.PersistentVolumeClaimSpec{}.SwaggerDoc()
	claimStatusDoc = corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()
)

var claimColumns = []catalog.Column[corev1.PersistentVolumeClaim]{
	catalog.NameColumn[corev1.PersistentVolumeClaim](),
	{Name: "Status", Description: claimStatusDoc["phase"], Cell: func(c *corev1.PersistentVolumeClaim, _ time.Time) any {
		return phase(string(c.Status.Phase), c.DeletionTimestamp)
	}},
	{Name: "Volume", Description: claimSpecDoc["volumeName"], Cell: func(c *corev1.PersistentVolumeClaim, _ time.Time) any {
		return c.Spec.VolumeName
	}},
	{Name: "Capacity", Description: claimStatusDoc["capacity"], Cell: func(c *corev1.PersistentVolumeClaim, _ time.Time) any {
		if c.Spec.VolumeName == "" {
			return ""
		}
		return storageOf(c.Status.Capacity)
	}},
	{Name: "Access Modes", Description: claimStatusDoc["accessModes"], Cell: func(c *corev1.PersistentVolumeClaim, _ time.Time) any {
		if c.Spec.VolumeName == "" {
			return ""
		}
		return shortModes(c.Status.AccessModes)
	}},
	{Name: "StorageClass", Description: "StorageClass of the pvc", Cell: func(c *corev1.PersistentVolumeClaim, _ time.Time) any {
		if class, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
			return class
		}
		return ptr.Deref(c.Spec.StorageClassName, "")
	}},
	{Name: "VolumeAttributesClass", Description: "VolumeAttributesClass of the pvc", Cell: func(c *corev1.PersistentVolumeClaim, _ time.Time) any {
		return orUnset(c.Spec.VolumeAttributesClassName)
	}},
	catalog.AgeColumn[corev1.PersistentVolumeClaim](),
	{Name: "VolumeMode", Priority: 1, Description: claimSpecDoc["volumeMode"], Cell: func(c *corev1.PersistentVolumeClaim, _ time.Time) any {
		return orUnset(c.Spec.VolumeMode)
	}},
}
