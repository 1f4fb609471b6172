package node

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver/podrefs"
)

// kind is a kind of object that a pod can refer to.
type kind uint8

const (
	secret kind = iota
	configMap
	claim
	resourceClaim
	serviceAccount
)

// sameReferences reports whether two versions of a pod, either of which may be nil, have the same node and references. References that it
// does not compare are immutable.
func sameReferences(old, pod *corev1.Pod) bool {
	if old == nil || pod == nil {
		return nodeOf(old) == "" && nodeOf(pod) == ""
	}
	return nodeOf(old) == nodeOf(pod) && (nodeOf(pod) == "" ||
		old.UID == pod.UID && len(old.Spec.EphemeralContainers) == len(pod.Spec.EphemeralContainers) &&
			equality.Semantic.DeepEqual(old.Status.ResourceClaimStatuses, pod.Status.ResourceClaimStatuses) && extendedClaim(old) == extendedClaim(pod))
}

func nodeOf(pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	return pod.Spec.NodeName
}

// references calls refer with what a pod refers to, possibly more than once for an object. A mirror pod, which the kubelet itself creates,
// grants it nothing.
func references(pod *corev1.Pod, refer func(kind, string)) {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return
	}
	spec := &pod.Spec
	refer(serviceAccount, spec.ServiceAccountName)
	for what, name := range podrefs.In(spec) {
		if what == podrefs.Secret {
			refer(secret, name)
		} else {
			refer(configMap, name)
		}
	}
	for i := range spec.Volumes {
		switch v := &spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			refer(claim, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			refer(claim, ephemeral.VolumeClaimName(pod, v))
		}
	}
	for i := range spec.ResourceClaims {
		refer(resourceClaim, claimName(pod, &spec.ResourceClaims[i]))
	}
	refer(resourceClaim, extendedClaim(pod))
}

// claimName returns the resource claim of a pod's entry: the one it names, or the one that was created from its template.
func claimName(pod *corev1.Pod, entry *corev1.PodResourceClaim) string {
	if entry.ResourceClaimName != nil {
		return *entry.ResourceClaimName
	}
	if entry.ResourceClaimTemplateName == nil {
		return ""
	}
	at := slices.IndexFunc(pod.Status.ResourceClaimStatuses, func(s corev1.PodResourceClaimStatus) bool { return s.Name == entry.Name })
	if at < 0 {
		return ""
	}
	return ptr.Deref(pod.Status.ResourceClaimStatuses[at].ResourceClaimName, "")
}

// extendedClaim returns the resource claim that was created for a pod's extended resources.
func extendedClaim(pod *corev1.Pod) string {
	if status := pod.Status.ExtendedResourceClaimStatus; status != nil {
		return status.ResourceClaimName
	}
	return ""
}

// claimOf returns the claim a volume is bound to.
func claimOf(volume *corev1.PersistentVolume) key {
	if ref := volume.Spec.ClaimRef; ref != nil {
		return key{ref.Namespace, ref.Name}
	}
	return key{}
}

// volumeSecrets calls refer with the secrets that a kubelet needs to mount a volume.
func volumeSecrets(volume *corev1.PersistentVolume, refer func(namespace, name string)) {
	explicit := func(ref *corev1.SecretReference) {
		if ref != nil {
			refer(ref.Namespace, ref.Name)
		}
	}
	implicit := func(ref *corev1.SecretReference) {
		if ref != nil && ref.Namespace == "" { // without a namespace it is the claim's
			refer(claimOf(volume).namespace, ref.Name)
		} else {
			explicit(ref)
		}
	}
	switch v := &volume.Spec.PersistentVolumeSource; {
	case v.CSI != nil:
		explicit(v.CSI.NodePublishSecretRef)
		explicit(v.CSI.NodeStageSecretRef)
		explicit(v.CSI.NodeExpandSecretRef)
	case v.AzureFile != nil:
		implicit(&corev1.SecretReference{Namespace: ptr.Deref(v.AzureFile.SecretNamespace, ""), Name: v.AzureFile.SecretName})
	case v.CephFS != nil:
		implicit(v.CephFS.SecretRef)
	case v.FlexVolume != nil:
		implicit(v.FlexVolume.SecretRef)
	case v.RBD != nil:
		implicit(v.RBD.SecretRef)
	case v.ScaleIO != nil:
		implicit(v.ScaleIO.SecretRef)
	case v.ISCSI != nil:
		implicit(v.ISCSI.SecretRef)
	case v.Cinder != nil:
		explicit(v.Cinder.SecretRef)
	case v.StorageOS != nil && v.StorageOS.SecretRef != nil:
		refer(v.StorageOS.SecretRef.Namespace, v.StorageOS.SecretRef.Name)
	}
}
