package volume

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/diff"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
	"skiff/internal/catalog/quantity"
)

// validateClaimUpdate refuses changes of a claim's spec, because quota was counted on creation, except that a claim may be bound
// once, be given a storage class once and, while bound, grow and change its attributes.
func validateClaimUpdate(new, old *corev1.PersistentVolumeClaim) field.ErrorList {
	at := check.At(field.NewPath("spec"))
	at.Add(rulesForUpdate(&old.Spec).validate(&new.Spec, at.Path())...)

	before, after := old.Spec, new.Spec // compared after every allowed change was undone
	completeDataSources(&before)        // claims from before dataSourceRef lack it in storage
	if before.VolumeName == "" {
		before.VolumeName = after.VolumeName
	}
	undoStorageClass(at, &after, new, old)
	if new.Status.Phase == corev1.ClaimBound {
		after.VolumeAttributesClassName = before.VolumeAttributesClassName
		if after.Resources.Requests != nil {
			after.Resources.Requests = maps.Clone(after.Resources.Requests)
			after.Resources.Requests[corev1.ResourceStorage] = before.Resources.Requests[corev1.ResourceStorage]
		}
	}
	if !apiequality.Semantic.DeepEqual(after, before) {
		at.Forbidden("", fmt.Sprintf("spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n%v",
			diff.Diff(check.Internal(before), check.Internal(after))))
	}
	checkNoShrink(at, new, old)
	at.Add(validation.ValidateImmutableField(new.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
	checkAttributesClassKept(at, new, old)
	return at.Errors()
}

// undoStorageClass undoes setting the storage class of a claim that had none, or had it in the annotation that preceded
// the field. The annotation itself may be removed only if the field is set.
func undoStorageClass(at *check.Part, after *corev1.PersistentVolumeClaimSpec, new, old *corev1.PersistentVolumeClaim) {
	was, wasAnnotated := old.Annotations[corev1.BetaStorageClassAnnotation]
	is, isAnnotated := new.Annotations[corev1.BetaStorageClassAnnotation]
	named := old.Spec.StorageClassName == nil && new.Spec.StorageClassName != nil
	moved := named && wasAnnotated && *new.Spec.StorageClassName == was && (!isAnnotated || is == was)
	if was != is && !moved {
		at.Add(field.Invalid(field.NewPath("metadata", "annotations", corev1.BetaStorageClassAnnotation), is, validation.FieldImmutableErrorMsg))
	}
	if named && (!wasAnnotated || *new.Spec.StorageClassName == was) {
		after.StorageClassName = nil
	}
}

// checkNoShrink allows a claim to shrink only to undo a failed expansion, and only to more than its capacity.
func checkNoShrink(at *check.Part, new, old *corev1.PersistentVolumeClaim) {
	size := new.Spec.Resources.Requests[corev1.ResourceStorage]
	if size.Cmp(old.Spec.Resources.Requests[corev1.ResourceStorage]) < 0 && size.Cmp(old.Status.Capacity[corev1.ResourceStorage]) <= 0 {
		at.Child("resources").Child("requests").Forbidden("storage", "field can not be less than status.capacity")
	}
}

// checkAttributesClassKept refuses to clear the attributes class that the volume currently has.
func checkAttributesClassKept(at *check.Part, new, old *corev1.PersistentVolumeClaim) {
	is, was := new.Spec.VolumeAttributesClassName, old.Spec.VolumeAttributesClassName
	switch {
	case old.Status.CurrentVolumeAttributesClassName == nil || apiequality.Semantic.DeepEqual(is, was):
	case is == nil:
		at.Forbidden("volumeAttributesClassName", "update to nil is forbidden when status.currentVolumeAttributesClassName is not nil")
	case *is == "":
		at.Forbidden("volumeAttributesClassName", "update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil")
	}
}

// resizeStates are the allowed values of allocatedResourceStatuses, sorted.
var resizeStates = []corev1.ClaimResourceStatus{
	corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible,
	corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible,
	corev1.PersistentVolumeClaimNodeResizePending,
}

func validateClaimStatus(new, _ *corev1.PersistentVolumeClaim) field.ErrorList {
	at := check.At(field.NewPath("status"))
	if len(new.Spec.AccessModes) == 0 {
		at.Add(field.Required(field.NewPath("Spec", "accessModes"), ""))
	}
	var buf [4]corev1.ResourceName
	for _, name := range quantity.SortedNames(new.Status.Capacity, buf[:]) {
		at.Add(representable(new.Status.Capacity[name], at.Path("capacity").Key(string(name)))...)
	}
	for _, name := range slices.Sorted(maps.Keys(new.Status.AllocatedResourceStatuses)) {
		at.Add(claimResourceName(name, at.Path("allocatedResourceStatuses"))...)
		if !slices.Contains(resizeStates, new.Status.AllocatedResourceStatuses[name]) {
			at.Add(field.NotSupported(at.Path("allocatedResourceStatuses"), name, resizeStates))
		}
	}
	for _, name := range quantity.SortedNames(new.Status.AllocatedResources, buf[:]) {
		at.Add(allocated(name, new.Status.AllocatedResources[name], at.Path("allocatedResources"))...)
	}
	return at.Errors()
}

func allocated(name corev1.ResourceName, q resource.Quantity, path *field.Path) field.ErrorList {
	if errs := claimResourceName(name, path); len(errs) > 0 {
		return errs
	}
	if errs := representable(q, path.Key(string(name))); len(errs) > 0 {
		return errs
	}
	return quantity.Nonnegative(q, path.Key(string(name)))
}

// claimResourceName validates the name of a resource of a claim: storage, or a driver's.
func claimResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, msg := range utilvalidation.IsQualifiedName(string(name)) {
		errs = append(errs, field.Invalid(path, string(name), msg))
	}
	if len(errs) == 0 && name != corev1.ResourceStorage && quantity.IsNative(name) {
		errs = append(errs, field.NotSupported(path, string(name), []corev1.ResourceName{corev1.ResourceStorage}))
	}
	return errs
}

// representable refuses a quantity whose whole value is negative.
func representable(q resource.Quantity, path *field.Path) field.ErrorList {
	if q.Value() < 0 {
		return field.ErrorList{field.Invalid(path, q.Value(), "must be a valid resource quantity")}
	}
	return nil
}
