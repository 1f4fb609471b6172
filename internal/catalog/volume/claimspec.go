package volume

import (
	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"skiff/internal/catalog/check"
	"skiff/internal/catalog/quantity"
)

// ValidateClaimSpec validates the spec of a new claim or of a claim template.
func ValidateClaimSpec(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	return claimRules{}.validate(spec, path)
}

// claimRules are relaxed for claims that were stored before a rule was introduced.
type claimRules struct {
	anyAPIGroup   bool // whether data sources may name an invalid API group
	anyLabelValue bool // whether the selector may hold values that no label can have
}

// rulesForUpdate relaxes the rules that the old claim already breaks.
func rulesForUpdate(old *corev1.PersistentVolumeClaimSpec) claimRules {
	return claimRules{
		anyAPIGroup: old.DataSource != nil && old.DataSource.APIGroup != nil ||
			old.DataSourceRef != nil && old.DataSourceRef.APIGroup != nil,
		anyLabelValue: len(metav1validation.ValidateLabelSelector(old.Selector, metav1validation.LabelSelectorValidationOptions{}, nil)) > 0,
	}
}

func (r claimRules) validate(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	at := check.At(path)
	at.Present("accessModes", len(spec.AccessModes) > 0, "at least 1 access mode is required")
	at.Selector("selector", spec.Selector, metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: r.anyLabelValue})
	checkAccessModes(at, spec.AccessModes)
	checkClaimSize(at, spec.Resources.Requests)
	if spec.StorageClassName != nil {
		checkClass(at, "storageClassName", *spec.StorageClassName)
	}
	checkVolumeMode(at, spec.VolumeMode)
	r.checkDataSources(at, spec)
	if spec.VolumeAttributesClassName != nil {
		checkClass(at, "volumeAttributesClassName", *spec.VolumeAttributesClassName)
	}
	return at.Errors()
}

func checkAccessModes(at *check.Part, modes []corev1.PersistentVolumeAccessMode) {
	alone, shared := false, false
	for _, mode := range modes {
		switch mode {
		case corev1.ReadWriteOncePod:
			alone = true
		case corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany:
			shared = true
		default:
			check.OneOf(at, "accessModes", mode, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod)
		}
	}
	if alone && shared {
		at.Forbidden("accessModes", "may not use ReadWriteOncePod with other access modes")
	}
}

func checkClaimSize(at *check.Part, requests corev1.ResourceList) {
	size, ok := requests[corev1.ResourceStorage]
	switch {
	case !ok:
		at.Add(field.Required(at.Path("resources").Key("storage"), ""))
	case size.Sign() <= 0:
		at.Add(quantity.Positive(size, at.Path("resources").Key("storage"))...)
	}
}

// checkClass checks the name of a class, which may be empty.
func checkClass(at *check.Part, name, class string) {
	if class != "" {
		at.Format(name, class, isSubdomainName)
	}
}

func checkVolumeMode(at *check.Part, mode *corev1.PersistentVolumeMode) {
	if mode != nil {
		check.OneOf(at, "volumeMode", *mode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
	}
}

func (r claimRules) checkDataSources(at *check.Part, spec *corev1.PersistentVolumeClaimSpec) {
	source, ref := spec.DataSource, spec.DataSourceRef
	if source != nil {
		r.checkDataSource(at.Child("dataSource"), source.APIGroup, source.Kind, source.Name)
	}
	if ref == nil {
		return
	}
	child := at.Child("dataSourceRef")
	r.checkDataSource(child, ref.APIGroup, ref.Kind, ref.Name)
	elsewhere := ptr.Deref(ref.Namespace, "")
	if elsewhere != "" {
		child.Format("namespace", elsewhere, isNamespace)
	}
	switch {
	case source == nil:
	case elsewhere != "":
		at.Invalid("", at.Path("dataSource"), "may not be specified when dataSourceRef.namespace is specified")
	case !ptr.Equal(source.APIGroup, ref.APIGroup) || source.Kind != ref.Kind || source.Name != ref.Name:
		at.Invalid("", at.Path("dataSource"), "must match dataSourceRef")
	}
}

func (r claimRules) checkDataSource(at *check.Part, apiGroup *string, kind, name string) {
	required(at, "name", name)
	required(at, "kind", kind)
	group := ptr.Deref(apiGroup, "")
	switch {
	case group == "" && kind != "PersistentVolumeClaim":
		at.Invalid("", kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
	case group != "" && !r.anyAPIGroup:
		at.Format("apiGroup", group, utilvalidation.IsDNS1123Subdomain)
	}
}
