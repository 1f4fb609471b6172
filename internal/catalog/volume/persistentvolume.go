package volume

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/nodeselector"
)

// PersistentVolume declares persistent volumes.
var PersistentVolume = catalog.Resource[corev1.PersistentVolume]{
	Version: "v1", Kind: "PersistentVolume", Plural: "persistentvolumes", Short: []string{"pv"},
	Deletion:            catalog.Deletion[corev1.PersistentVolume]{ReturnsObject: true},
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Default:             defaultPersistentVolume,
	PrepareCreate:       preparePersistentVolume,
	Validate:            validatePersistentVolume,
	ValidateUpdate:      validatePersistentVolumeUpdate,
	Warnings:            persistentVolumeWarnings,
	Status:              &catalog.Edit[corev1.PersistentVolume]{PrepareUpdate: preparePersistentVolumeStatus},
	Columns:             persistentVolumeColumns,
	Complete:            true,
}

func preparePersistentVolume(v *corev1.PersistentVolume, req catalog.Request) {
	now := metav1.NewTime(req.Now)
	v.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending, LastPhaseTransitionTime: &now}
}

// preparePersistentVolumeStatus sets lastPhaseTransitionTime when the phase changes, unless the client sets it.
func preparePersistentVolumeStatus(new, old *corev1.PersistentVolume) {
	n, o := &new.Status, &old.Status
	switch changed := n.Phase != o.Phase; {
	case !changed && n.LastPhaseTransitionTime == nil:
		n.LastPhaseTransitionTime = o.LastPhaseTransitionTime
	case changed && (n.LastPhaseTransitionTime == nil || n.LastPhaseTransitionTime.Equal(o.LastPhaseTransitionTime)):
		now := metav1.Now()
		n.LastPhaseTransitionTime = &now
	}
}

func persistentVolumeWarnings(v, _ *corev1.PersistentVolume) []string {
	var warnings []string
	for _, a := range []struct{ key, message string }{
		{corev1.BetaStorageClassAnnotation, `deprecated since v1.8; use "storageClassName" attribute instead`},
		{corev1.MountOptionAnnotation, `deprecated since v1.31; use "mountOptions" attribute instead`},
	} {
		if _, used := v.Annotations[a.key]; used {
			warnings = append(warnings, fmt.Sprintf("metadata.annotations[%s]: %s", a.key, a.message))
		}
	}
	if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		warnings = append(warnings, "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.")
	}
	if a := v.Spec.NodeAffinity; a != nil && a.Required != nil {
		warnings = append(warnings, nodeselector.Warnings(a.Required, field.NewPath("spec", "nodeAffinity", "required"))...)
	}
	for _, s := range []struct {
		used    bool
		message string
	}{
		{v.Spec.CephFS != nil, "spec.cephfs: deprecated in v1.28, non-functional in v1.31+"},
		{v.Spec.PhotonPersistentDisk != nil, "spec.photonPersistentDisk: deprecated in v1.11, non-functional in v1.16+"},
		{v.Spec.ScaleIO != nil, "spec.scaleIO: deprecated in v1.16, non-functional in v1.22+"},
		{v.Spec.StorageOS != nil, "spec.storageOS: deprecated in v1.22, non-functional in v1.25+"},
		{v.Spec.Glusterfs != nil, "spec.glusterfs: deprecated in v1.25, non-functional in v1.26+"},
		{v.Spec.RBD != nil, "spec.rbd: deprecated in v1.28, non-functional in v1.31+"},
	} {
		if s.used {
			warnings = append(warnings, s.message)
		}
	}
	return warnings
}

var (
	volumeSpecDoc   = corev1.PersistentVolumeSpec{}.SwaggerDoc()
	volumeStatusDoc = corev1.PersistentVolumeStatus{}.SwaggerDoc()
)

var persistentVolumeColumns = []catalog.Column[corev1.PersistentVolume]{
	catalog.NameColumn[corev1.PersistentVolume](),
	{Name: "Capacity", Description: volumeSpecDoc["capacity"], Cell: func(v *corev1.PersistentVolume, _ time.Time) any {
		return storageOf(v.Spec.Capacity)
	}},
	{Name: "Access Modes", Description: volumeSpecDoc["accessModes"], Cell: func(v *corev1.PersistentVolume, _ time.Time) any {
		return shortModes(v.Spec.AccessModes)
	}},
	{Name: "Reclaim Policy", Description: volumeSpecDoc["persistentVolumeReclaimPolicy"], Cell: func(v *corev1.PersistentVolume, _ time.Time) any {
		return string(v.Spec.PersistentVolumeReclaimPolicy)
	}},
	{Name: "Status", Description: volumeStatusDoc["phase"], Cell: func(v *corev1.PersistentVolume, _ time.Time) any {
		return phase(string(v.Status.Phase), v.DeletionTimestamp)
	}},
	{Name: "Claim", Description: volumeSpecDoc["claimRef"], Cell: func(v *corev1.PersistentVolume, _ time.Time) any {
		if v.Spec.ClaimRef == nil {
			return ""
		}
		return v.Spec.ClaimRef.Namespace + "/" + v.Spec.ClaimRef.Name
	}},
	{Name: "StorageClass", Description: "StorageClass of the pv", Cell: func(v *corev1.PersistentVolume, _ time.Time) any {
		if class, ok := v.Annotations[corev1.BetaStorageClassAnnotation]; ok {
			return class
		}
		return v.Spec.StorageClassName
	}},
	{Name: "VolumeAttributesClass", Description: "VolumeAttributesClass of the pv", Cell: func(v *corev1.PersistentVolume, _ time.Time) any {
		return orUnset(v.Spec.VolumeAttributesClassName)
	}},
	{Name: "Reason", Description: volumeStatusDoc["reason"], Cell: func(v *corev1.PersistentVolume, _ time.Time) any {
		return v.Status.Reason
	}},
	catalog.AgeColumn[corev1.PersistentVolume](),
	{Name: "VolumeMode", Priority: 1, Description: volumeSpecDoc["volumeMode"], Cell: func(v *corev1.PersistentVolume, _ time.Time) any {
		return orUnset(v.Spec.VolumeMode)
	}},
}
