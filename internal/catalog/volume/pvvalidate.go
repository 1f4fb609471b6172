package volume

import (
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
	"skiff/internal/catalog/nodeselector"
	"skiff/internal/catalog/quantity"
)

func validatePersistentVolume(v *corev1.PersistentVolume) field.ErrorList {
	return validateVolume(v, false)
}

// validateVolume validates a volume. With anyLabelValue its node affinity may hold values that no label can have.
func validateVolume(v *corev1.PersistentVolume, anyLabelValue bool) field.ErrorList {
	spec := &v.Spec
	at := check.At(field.NewPath("spec"))
	at.Present("accessModes", len(spec.AccessModes) > 0, "")
	checkAccessModes(at, spec.AccessModes)
	checkCapacity(at, spec.Capacity)
	if spec.PersistentVolumeReclaimPolicy != "" {
		check.OneOf(at, "persistentVolumeReclaimPolicy", spec.PersistentVolumeReclaimPolicy,
			corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)
	}
	checkNodeAffinity(at.Child("nodeAffinity"), spec.NodeAffinity, anyLabelValue)
	oneOf(volumeKinds, v, at)
	checkRecycledRoot(at, spec)
	checkClass(at, "storageClassName", spec.StorageClassName)
	checkVolumeMode(at, spec.VolumeMode)
	checkAttributesClass(at, spec)
	checkMountOptions(at, v)
	return at.Errors()
}

// ValidateInlineSpec validates the inline volume spec of a volume attachment, which takes the place of the name of a volume. Only CSI
// volumes can be attached so.
func ValidateInlineSpec(spec *corev1.PersistentVolumeSpec, path *field.Path) field.ErrorList {
	const inline = "may not be specified in the context of inline volumes"
	at := check.At(path)
	if spec.ClaimRef != nil {
		at.Forbidden("claimRef", inline)
	}
	if len(spec.Capacity) > 0 {
		at.Forbidden("capacity", inline)
	}
	at.Present("csi", spec.CSI != nil, "has to be specified in the context of inline volumes")
	at.Present("accessModes", len(spec.AccessModes) > 0, "")
	checkAccessModes(at, spec.AccessModes)
	if p := spec.PersistentVolumeReclaimPolicy; p != "" && p != corev1.PersistentVolumeReclaimRetain {
		at.Forbidden("persistentVolumeReclaimPolicy", "may only be Retain in the context of inline volumes")
	}
	if spec.NodeAffinity != nil {
		at.Forbidden("nodeAffinity", inline)
	}
	v := &corev1.PersistentVolume{Spec: *spec}
	v.Spec.NodeAffinity = nil // as it is forbidden, it does not count as one for volumes that need it
	oneOf(volumeKinds, v, at)
	checkRecycledRoot(at, spec)
	if spec.StorageClassName != "" {
		at.Forbidden("storageClassName", inline)
	}
	if m := spec.VolumeMode; m != nil && *m != corev1.PersistentVolumeFilesystem {
		at.Forbidden("volumeMode", "may not specify volumeMode other than Filesystem in the context of inline volumes")
	}
	return at.Errors()
}

func checkRecycledRoot(at *check.Part, spec *corev1.PersistentVolumeSpec) {
	if h := spec.HostPath; h != nil && path.Clean(h.Path) == "/" && spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		at.Forbidden("persistentVolumeReclaimPolicy", "may not be 'recycle' for a hostPath mount of '/'")
	}
}

func checkCapacity(at *check.Part, capacity corev1.ResourceList) {
	at.Present("capacity", len(capacity) > 0, "")
	if _, ok := capacity[corev1.ResourceStorage]; !ok || len(capacity) > 1 {
		at.Add(field.NotSupported(at.Path("capacity"), capacity, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	var buf [4]corev1.ResourceName
	for _, name := range quantity.SortedNames(capacity, buf[:]) {
		if q := capacity[name]; q.Sign() <= 0 {
			key := at.Path("capacity").Key(string(name))
			at.Add(representable(q, key)...)
			at.Add(quantity.Positive(q, key)...)
		}
	}
}

func checkNodeAffinity(at *check.Part, a *corev1.VolumeNodeAffinity, anyLabelValue bool) {
	switch {
	case a == nil:
	case a.Required == nil:
		at.Required("required", "must specify required node constraints")
	default:
		at.Add(nodeselector.Validate(a.Required, anyLabelValue, at.Path("required"))...)
	}
}

func checkAttributesClass(at *check.Part, spec *corev1.PersistentVolumeSpec) {
	class := spec.VolumeAttributesClassName
	if class == nil {
		return
	}
	if *class == "" {
		at.Required("volumeAttributesClassName", "an empty string is disallowed")
	}
	checkClass(at, "volumeAttributesClassName", *class)
	at.Present("csi", spec.CSI != nil, "has to be specified when using volumeAttributesClassName")
}

// checkMountOptions refuses the old annotation on volumes whose sources never supported it. It does not restrict the field spec.mountOptions.
func checkMountOptions(at *check.Part, v *corev1.PersistentVolume) {
	if _, used := v.Annotations[corev1.MountOptionAnnotation]; !used {
		return
	}
	s := &v.Spec
	if s.GCEPersistentDisk == nil && s.AWSElasticBlockStore == nil && s.Glusterfs == nil && s.NFS == nil && s.RBD == nil &&
		s.Quobyte == nil && s.ISCSI == nil && s.Cinder == nil && s.CephFS == nil && s.AzureFile == nil &&
		s.VsphereVolume == nil && s.AzureDisk == nil && s.PhotonPersistentDisk == nil {
		at.Add(field.Forbidden(field.NewPath("metadata", "annotations", corev1.MountOptionAnnotation), "may not specify mount options for this volume type"))
	}
}

func validatePersistentVolumeUpdate(new, old *corev1.PersistentVolume) field.ErrorList {
	affinity := old.Spec.NodeAffinity
	anyLabelValue := affinity != nil && affinity.Required != nil && nodeselector.HasInvalidLabelValue(affinity.Required)
	errs := validateVolume(new, anyLabelValue)

	source := new.Spec.PersistentVolumeSource
	if o, n := old.Spec.CSI, source.CSI; o != nil && o.ControllerExpandSecretRef == nil && n != nil {
		// Volumes from before expansion existed may be given its secret.
		csi := *n
		csi.ControllerExpandSecretRef = nil
		source.CSI = &csi
	}
	if before := old.Spec.PersistentVolumeSource; !apiequality.Semantic.DeepEqual(source, before) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "persistentvolumesource"),
			fmt.Sprintf("spec.persistentvolumesource is immutable after creation\n%v", diff.Diff(check.Internal(before), check.Internal(source)))))
	}
	errs = append(errs, validation.ValidateImmutableField(new.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
	if affinity != nil && !sameAffinity(new.Spec.NodeAffinity, affinity) {
		errs = append(errs, field.Invalid(field.NewPath("nodeAffinity"), check.Internal(new.Spec.NodeAffinity),
			validation.FieldImmutableErrorMsg+", except for updating from beta label to GA"))
	}
	if old.Spec.VolumeAttributesClassName != nil && new.Spec.VolumeAttributesClassName == nil {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "volumeAttributesClassName"), "update from non-nil value to nil is forbidden"))
	}
	return errs
}

// stableLabels maps the former beta node labels to their stable names.
var stableLabels = map[string]string{
	corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
	"beta.kubernetes.io/os":             corev1.LabelOSStable,
	"beta.kubernetes.io/arch":           corev1.LabelArchStable,
}

// sameAffinity compares affinities, but lets a label be replaced by its stable successor.
func sameAffinity(new, old *corev1.VolumeNodeAffinity) bool {
	if apiequality.Semantic.DeepEqual(new, old) {
		return true
	}
	if new == nil || new.Required == nil || old.Required == nil || len(new.Required.NodeSelectorTerms) != len(old.Required.NodeSelectorTerms) {
		return false
	}
	renamed := old.DeepCopy()
	for i, term := range renamed.Required.NodeSelectorTerms {
		next := new.Required.NodeSelectorTerms[i]
		rename(term.MatchExpressions, next.MatchExpressions)
		rename(term.MatchFields, next.MatchFields)
	}
	return apiequality.Semantic.DeepEqual(new, renamed)
}

// rename renames labels of old requirements to their stable names where the new requirements use those.
func rename(old, new []corev1.NodeSelectorRequirement) {
	for i := range old {
		if i < len(new) && stableLabels[old[i].Key] == new[i].Key && new[i].Key != "" {
			old[i].Key = new[i].Key
		}
	}
}
