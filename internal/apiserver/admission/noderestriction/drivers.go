package noderestriction

import (
	corev1 "k8s.io/api/core/v1"
)

// driverOf returns the CSI driver of a pod's volume; empty if none.
func (p *plugin) driverOf(pod *corev1.Pod, v *corev1.Volume) (string, error) {
	switch {
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		return p.driverOfClaim(pod.Namespace, pod.Name+"-"+v.Name)
	case v.PersistentVolumeClaim != nil:
		return p.driverOfClaim(pod.Namespace, v.PersistentVolumeClaim.ClaimName)
	case v.CSI != nil:
		return v.CSI.Driver, nil
	default:
		return migratedInlineDriver(&v.VolumeSource), nil
	}
}

// driverOfClaim returns the CSI driver of the volume a claim is bound to.
func (p *plugin) driverOfClaim(namespace, name string) (string, error) {
	claim, ok := p.objects.Get(claims, namespace, name).(*corev1.PersistentVolumeClaim)
	if !ok {
		return "", notFound(claims, name)
	}
	volume, ok := p.objects.Get(volumes, "", claim.Spec.VolumeName).(*corev1.PersistentVolume)
	if !ok {
		return "", notFound(volumes, claim.Spec.VolumeName)
	}
	if volume.Spec.CSI != nil {
		return volume.Spec.CSI.Driver, nil
	}
	return migratedDriver(&volume.Spec.PersistentVolumeSource), nil
}

// The CSI drivers that in-tree volume types were migrated to.
const (
	gcePD     = "pd.csi.storage.gke.io"
	awsEBS    = "ebs.csi.aws.com"
	cinder    = "cinder.csi.openstack.org"
	azureDisk = "disk.csi.azure.com"
	azureFile = "file.csi.azure.com"
	vsphere   = "csi.vsphere.vmware.com"
	portworx  = "pxd.portworx.com"
)

// migratedDriver returns the CSI driver that the in-tree type of a PersistentVolume was migrated to; empty if none.
func migratedDriver(v *corev1.PersistentVolumeSource) string {
	return firstOf(v.GCEPersistentDisk != nil, v.AWSElasticBlockStore != nil, v.Cinder != nil, v.AzureDisk != nil, v.AzureFile != nil, v.VsphereVolume != nil, v.PortworxVolume != nil)
}

// migratedInlineDriver returns the CSI driver that the in-tree type of a pod's inline volume was migrated to; empty if none.
func migratedInlineDriver(v *corev1.VolumeSource) string {
	return firstOf(v.GCEPersistentDisk != nil, v.AWSElasticBlockStore != nil, v.Cinder != nil, v.AzureDisk != nil, v.AzureFile != nil, v.VsphereVolume != nil, v.PortworxVolume != nil)
}

// firstOf returns the driver of the first volume type that is set; empty if none. The types come in the order of the drivers.
func firstOf(set ...bool) string {
	drivers := [...]string{gcePD, awsEBS, cinder, azureDisk, azureFile, vsphere, portworx}
	for i, driver := range drivers {
		if set[i] {
			return driver
		}
	}
	return ""
}
