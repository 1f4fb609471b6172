package volume

import corev1 "k8s.io/api/core/v1"

// MigratedTo holds the CSI drivers that do the work of plugins that were part of Kubernetes. It must not be changed.
var MigratedTo = map[string]string{
	"kubernetes.io/aws-ebs":         "ebs.csi.aws.com",
	"kubernetes.io/azure-disk":      "disk.csi.azure.com",
	"kubernetes.io/azure-file":      "file.csi.azure.com",
	"kubernetes.io/cinder":          "cinder.csi.openstack.org",
	"kubernetes.io/gce-pd":          "pd.csi.storage.gke.io",
	"kubernetes.io/portworx-volume": "pxd.portworx.com",
	"kubernetes.io/vsphere-volume":  "csi.vsphere.vmware.com",
}

// InTreePlugin returns the plugin of a volume that was part of Kubernetes, or "".
func InTreePlugin(v *corev1.PersistentVolume) string {
	switch s := &v.Spec.PersistentVolumeSource; {
	case s.AWSElasticBlockStore != nil:
		return "kubernetes.io/aws-ebs"
	case s.AzureDisk != nil:
		return "kubernetes.io/azure-disk"
	case s.AzureFile != nil:
		return "kubernetes.io/azure-file"
	case s.Cinder != nil:
		return "kubernetes.io/cinder"
	case s.GCEPersistentDisk != nil:
		return "kubernetes.io/gce-pd"
	case s.PortworxVolume != nil:
		return "kubernetes.io/portworx-volume"
	case s.VsphereVolume != nil:
		return "kubernetes.io/vsphere-volume"
	}
	return ""
}
