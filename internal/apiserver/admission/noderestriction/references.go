package noderestriction

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/podrefs"
)

// usedObjects returns the resource of the first object that a pod refers to, with upstream's words; empty if the pod refers to none.
// A volume of an unknown type is an error.
func usedObjects(spec *corev1.PodSpec) (string, error) {
	switch {
	case spec.ServiceAccountName != "":
		return "serviceaccounts", nil
	case podrefs.HasSecret(spec):
		return "secrets", nil
	case podrefs.HasConfigMap(spec):
		return "configmaps", nil
	case len(spec.ResourceClaims) > 0:
		return "resourceclaims", nil
	}
	for i := range spec.Volumes {
		if used, err := usedByVolume(&spec.Volumes[i]); used != "" || err != nil {
			return used, err
		}
	}
	return "", nil
}

func usedByVolume(v *corev1.Volume) (string, error) {
	switch {
	case v.AWSElasticBlockStore != nil, v.AzureDisk != nil, v.CephFS != nil, v.Cinder != nil, v.DownwardAPI != nil, v.EmptyDir != nil, v.FC != nil,
		v.FlexVolume != nil, v.Flocker != nil, v.GCEPersistentDisk != nil, v.GitRepo != nil, v.HostPath != nil, v.Image != nil, v.ISCSI != nil,
		v.NFS != nil, v.PhotonPersistentDisk != nil, v.PortworxVolume != nil, v.Quobyte != nil, v.RBD != nil, v.ScaleIO != nil,
		v.StorageOS != nil, v.VsphereVolume != nil:
		return "", nil
	case v.ConfigMap != nil:
		return "configmaps (via configmap volumes)", nil
	case v.Secret != nil:
		return "secrets (via secret volumes)", nil
	case v.CSI != nil:
		return "csidrivers (via CSI volumes)", nil
	case v.Glusterfs != nil:
		return "endpoints (via glusterFS volumes)", nil
	case v.PersistentVolumeClaim != nil:
		return "persistentvolumeclaims", nil
	case v.Ephemeral != nil:
		return "persistentvolumeclaims (via ephemeral volumes)", nil
	case v.AzureFile != nil:
		return "secrets (via azureFile volumes)", nil
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			if used, err := usedByProjection(&v.Projected.Sources[i], v.Name); used != "" || err != nil {
				return used, err
			}
		}
		return "", nil
	default:
		return "", fmt.Errorf("unknown volume type for volume  %q", v.Name)
	}
}

func usedByProjection(s *corev1.VolumeProjection, volume string) (string, error) {
	switch {
	case s.ConfigMap != nil:
		return "configmaps (via projected volumes)", nil
	case s.Secret != nil:
		return "secrets (via projected volumes)", nil
	case s.ServiceAccountToken != nil:
		return "serviceaccounts (via projected volumes)", nil
	case s.ClusterTrustBundle != nil:
		return "clustertrustbundles", nil
	case s.PodCertificate != nil:
		return "podcertificates", nil
	case s.DownwardAPI != nil:
		return "", nil
	default:
		return "", fmt.Errorf("unknown source for projected volume %q", volume)
	}
}
