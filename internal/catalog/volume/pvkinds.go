package volume

import (
	corev1 "k8s.io/api/core/v1"

	"skiff/internal/catalog/check"
)

// volumeKinds are the sources of persistent volumes. If several are set, the first in this order is validated and the others are
// refused.
var volumeKinds = []kind[corev1.PersistentVolume]{
	source("hostPath", func(v *corev1.PersistentVolume) *corev1.HostPathVolumeSource { return v.Spec.HostPath }, checkHostPath),
	oddSource("gcePersistentDisk", "persistentDisk", func(v *corev1.PersistentVolume) *corev1.GCEPersistentDiskVolumeSource {
		return v.Spec.GCEPersistentDisk
	}, checkGCEDisk),
	source("awsElasticBlockStore", func(v *corev1.PersistentVolume) *corev1.AWSElasticBlockStoreVolumeSource {
		return v.Spec.AWSElasticBlockStore
	}, checkEBS),
	source("glusterfs", func(v *corev1.PersistentVolume) *corev1.GlusterfsPersistentVolumeSource { return v.Spec.Glusterfs }, checkPersistentGlusterfs),
	source("flocker", func(v *corev1.PersistentVolume) *corev1.FlockerVolumeSource { return v.Spec.Flocker }, checkFlocker),
	source("nfs", func(v *corev1.PersistentVolume) *corev1.NFSVolumeSource { return v.Spec.NFS }, checkNFS),
	source("rbd", func(v *corev1.PersistentVolume) *corev1.RBDPersistentVolumeSource { return v.Spec.RBD }, func(at *check.Part, r *corev1.RBDPersistentVolumeSource) {
		checkRBD(at, r.CephMonitors, r.RBDImage)
	}),
	source("quobyte", func(v *corev1.PersistentVolume) *corev1.QuobyteVolumeSource { return v.Spec.Quobyte }, checkQuobyte),
	oddSource("cephFS", "cephfs", func(v *corev1.PersistentVolume) *corev1.CephFSPersistentVolumeSource { return v.Spec.CephFS }, func(at *check.Part, c *corev1.CephFSPersistentVolumeSource) {
		checkCephFS(at, c.Monitors)
	}),
	volumeISCSI,
	source("cinder", func(v *corev1.PersistentVolume) *corev1.CinderPersistentVolumeSource { return v.Spec.Cinder }, func(at *check.Part, c *corev1.CinderPersistentVolumeSource) {
		required(at, "volumeID", c.VolumeID)
		checkSecretReference(at, c.SecretRef)
	}),
	source("fc", func(v *corev1.PersistentVolume) *corev1.FCVolumeSource { return v.Spec.FC }, checkFC),
	volumeFlex,
	source("azureFile", func(v *corev1.PersistentVolume) *corev1.AzureFilePersistentVolumeSource { return v.Spec.AzureFile }, func(at *check.Part, a *corev1.AzureFilePersistentVolumeSource) {
		checkAzureFile(at, a.SecretName, a.ShareName)
		at.Present("secretNamespace", a.SecretNamespace == nil || *a.SecretNamespace != "", "")
	}),
	source("vsphereVolume", func(v *corev1.PersistentVolume) *corev1.VsphereVirtualDiskVolumeSource { return v.Spec.VsphereVolume }, checkVsphere),
	source("photonPersistentDisk", func(v *corev1.PersistentVolume) *corev1.PhotonPersistentDiskVolumeSource {
		return v.Spec.PhotonPersistentDisk
	}, checkPhoton),
	source("portworxVolume", func(v *corev1.PersistentVolume) *corev1.PortworxVolumeSource { return v.Spec.PortworxVolume }, checkPortworx),
	source("azureDisk", func(v *corev1.PersistentVolume) *corev1.AzureDiskVolumeSource { return v.Spec.AzureDisk }, checkAzureDisk),
	source("scaleIO", func(v *corev1.PersistentVolume) *corev1.ScaleIOPersistentVolumeSource { return v.Spec.ScaleIO }, func(at *check.Part, s *corev1.ScaleIOPersistentVolumeSource) {
		checkScaleIO(at, s.Gateway, s.System, s.VolumeName)
	}),
	volumeLocal,
	source("storageos", func(v *corev1.PersistentVolume) *corev1.StorageOSPersistentVolumeSource { return v.Spec.StorageOS }, func(at *check.Part, s *corev1.StorageOSPersistentVolumeSource) {
		checkStorageOS(at, s.VolumeName, s.VolumeNamespace)
		if s.SecretRef != nil {
			required(at.Child("secretRef"), "name", s.SecretRef.Name)
			required(at.Child("secretRef"), "namespace", s.SecretRef.Namespace)
		}
	}),
	source("csi", func(v *corev1.PersistentVolume) *corev1.CSIPersistentVolumeSource { return v.Spec.CSI }, checkPersistentCSI),
}

// volumeISCSI also validates the length of the volume's name, which together with the portal names the initiator's interface.
func volumeISCSI(v *corev1.PersistentVolume, at *check.Part, taken bool) bool {
	i := v.Spec.ISCSI
	switch {
	case i == nil:
		return false
	case taken:
		refuseSecond(at, "iscsi")
		return true
	}
	at = at.Child("iscsi")
	required(at, "targetPortal", i.TargetPortal)
	if i.InitiatorName != nil && len(v.Name)+1+len(i.TargetPortal) > maxISCSIInterface {
		at.Invalid("targetportal", i.TargetPortal, iscsiInterfaceTooLong)
	}
	checkISCSITarget(at, iscsi{
		iqn: i.IQN, lun: i.Lun, initiator: i.InitiatorName, chap: i.DiscoveryCHAPAuth || i.SessionCHAPAuth,
		hasSecret: i.SecretRef != nil, nameless: i.SecretRef != nil && i.SecretRef.Name == "",
	})
	return true
}

// volumeFlex is the one source that is validated, and not refused, after another one.
func volumeFlex(v *corev1.PersistentVolume, at *check.Part, _ bool) bool {
	if v.Spec.FlexVolume == nil {
		return false
	}
	checkFlex(at.Child("flexVolume"), v.Spec.FlexVolume.Driver, v.Spec.FlexVolume.Options)
	return true
}

// volumeLocal also requires node affinity, because the disk is on one node.
func volumeLocal(v *corev1.PersistentVolume, at *check.Part, taken bool) bool {
	switch {
	case v.Spec.Local == nil:
		return false
	case taken:
		refuseSecond(at, "local")
		return true
	}
	checkLocal(at.Child("local"), v.Spec.Local)
	at.Present("nodeAffinity", v.Spec.NodeAffinity != nil, "Local volume requires node affinity")
	return true
}
