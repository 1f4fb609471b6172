package volume

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"

	"skiff/internal/catalog/check"
)

// podVolume is a volume of a pod with the pod's name, empty if it has none yet.
type podVolume struct {
	*corev1.Volume
	pod string
}

// podKinds are the sources of a pod's volumes. If several are set, the first in this order is validated and the others are refused.
var podKinds = []kind[podVolume]{
	source("emptyDir", func(v *podVolume) *corev1.EmptyDirVolumeSource { return v.EmptyDir }, checkEmptyDir),
	source("hostPath", func(v *podVolume) *corev1.HostPathVolumeSource { return v.HostPath }, checkHostPath),
	source("gitRepo", func(v *podVolume) *corev1.GitRepoVolumeSource { return v.GitRepo }, checkGitRepo),
	oddSource("gcePersistentDisk", "persistentDisk", func(v *podVolume) *corev1.GCEPersistentDiskVolumeSource { return v.GCEPersistentDisk }, checkGCEDisk),
	source("awsElasticBlockStore", func(v *podVolume) *corev1.AWSElasticBlockStoreVolumeSource { return v.AWSElasticBlockStore }, checkEBS),
	source("secret", func(v *podVolume) *corev1.SecretVolumeSource { return v.Secret }, checkSecret),
	source("nfs", func(v *podVolume) *corev1.NFSVolumeSource { return v.NFS }, checkNFS),
	podISCSI,
	source("glusterfs", func(v *podVolume) *corev1.GlusterfsVolumeSource { return v.Glusterfs }, func(at *check.Part, g *corev1.GlusterfsVolumeSource) {
		checkGlusterfs(at, g.EndpointsName, g.Path)
	}),
	source("flocker", func(v *podVolume) *corev1.FlockerVolumeSource { return v.Flocker }, checkFlocker),
	source("persistentVolumeClaim", func(v *podVolume) *corev1.PersistentVolumeClaimVolumeSource { return v.PersistentVolumeClaim }, checkClaimSource),
	source("rbd", func(v *podVolume) *corev1.RBDVolumeSource { return v.RBD }, func(at *check.Part, r *corev1.RBDVolumeSource) {
		checkRBD(at, r.CephMonitors, r.RBDImage)
	}),
	source("cinder", func(v *podVolume) *corev1.CinderVolumeSource { return v.Cinder }, func(at *check.Part, c *corev1.CinderVolumeSource) {
		required(at, "volumeID", c.VolumeID)
		checkLocalSecret(at, c.SecretRef)
	}),
	oddSource("cephFS", "cephfs", func(v *podVolume) *corev1.CephFSVolumeSource { return v.CephFS }, func(at *check.Part, c *corev1.CephFSVolumeSource) {
		checkCephFS(at, c.Monitors)
	}),
	source("quobyte", func(v *podVolume) *corev1.QuobyteVolumeSource { return v.Quobyte }, checkQuobyte),
	oddSource("downwarAPI", "downwardAPI", func(v *podVolume) *corev1.DownwardAPIVolumeSource { return v.DownwardAPI }, checkDownwardAPI),
	source("fc", func(v *podVolume) *corev1.FCVolumeSource { return v.FC }, checkFC),
	source("flexVolume", func(v *podVolume) *corev1.FlexVolumeSource { return v.FlexVolume }, func(at *check.Part, f *corev1.FlexVolumeSource) {
		checkFlex(at, f.Driver, f.Options)
	}),
	source("configMap", func(v *podVolume) *corev1.ConfigMapVolumeSource { return v.ConfigMap }, checkConfigMap),
	source("azureFile", func(v *podVolume) *corev1.AzureFileVolumeSource { return v.AzureFile }, func(at *check.Part, a *corev1.AzureFileVolumeSource) {
		checkAzureFile(at, a.SecretName, a.ShareName)
	}),
	source("vsphereVolume", func(v *podVolume) *corev1.VsphereVirtualDiskVolumeSource { return v.VsphereVolume }, checkVsphere),
	source("photonPersistentDisk", func(v *podVolume) *corev1.PhotonPersistentDiskVolumeSource { return v.PhotonPersistentDisk }, checkPhoton),
	source("portworxVolume", func(v *podVolume) *corev1.PortworxVolumeSource { return v.PortworxVolume }, checkPortworx),
	source("azureDisk", func(v *podVolume) *corev1.AzureDiskVolumeSource { return v.AzureDisk }, checkAzureDisk),
	source("storageos", func(v *podVolume) *corev1.StorageOSVolumeSource { return v.StorageOS }, func(at *check.Part, s *corev1.StorageOSVolumeSource) {
		checkStorageOS(at, s.VolumeName, s.VolumeNamespace)
		checkLocalSecret(at, s.SecretRef)
	}),
	source("projected", func(v *podVolume) *corev1.ProjectedVolumeSource { return v.Projected }, checkProjected),
	source("scaleIO", func(v *podVolume) *corev1.ScaleIOVolumeSource { return v.ScaleIO }, func(at *check.Part, s *corev1.ScaleIOVolumeSource) {
		checkScaleIO(at, s.Gateway, s.System, s.VolumeName)
	}),
	source("csi", func(v *podVolume) *corev1.CSIVolumeSource { return v.CSI }, checkCSI),
	podEphemeral,
	source("image", func(v *podVolume) *corev1.ImageVolumeSource { return v.Image }, checkImage),
}

// podISCSI also validates the length of the volume's name, which together with the portal names the initiator's interface.
func podISCSI(v *podVolume, at *check.Part, taken bool) bool {
	i := v.ISCSI
	if i == nil {
		return false
	}
	if taken {
		refuseSecond(at, "iscsi")
	} else {
		checkISCSI(at.Child("iscsi"), iscsi{
			portal: i.TargetPortal, iqn: i.IQN, lun: i.Lun, initiator: i.InitiatorName, beginning: " starting with iqn, eui, or naa",
			chap: i.DiscoveryCHAPAuth || i.SessionCHAPAuth, hasSecret: i.SecretRef != nil,
		})
	}
	if i.InitiatorName != nil && len(v.Name)+1+len(i.TargetPortal) > maxISCSIInterface {
		at.Invalid("name", v.Name, iscsiInterfaceTooLong)
	}
	return true
}

// podEphemeral also validates the name of the claim that will be created: the pod's and the volume's together.
func podEphemeral(v *podVolume, at *check.Part, taken bool) bool {
	switch {
	case v.Ephemeral == nil:
		return false
	case taken:
		refuseSecond(at, "ephemeral")
		return true
	}
	checkEphemeral(at.Child("ephemeral"), v.Ephemeral)
	if v.pod != "" && v.Name != "" {
		claim := v.pod + "-" + v.Name
		for _, msg := range validation.NameIsDNSSubdomain(claim, false) {
			at.Invalid("name", v.Name, fmt.Sprintf("PVC name %q: %v", claim, msg))
		}
	}
	return true
}
