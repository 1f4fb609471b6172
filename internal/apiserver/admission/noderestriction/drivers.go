package noderestriction

import (
	corev1 "k8s.io/api/core/v1"
)

// driverOf returns the CSI driver that serves a volume of a pod; empty if none does.
func (p *plugin) driverOf(pod *corev1.Pod, v *corev1.Volume) (string, error) {
	switch {
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		return p.driverOfClaim(pod.Namespace, pod.Name+"-"+v.Name)
	case v.PersistentVolumeClaim != nil:
		return p.driverOfClaim(pod.Namespace, v.PersistentVolumeClaim.ClaimName)
	case v.CSI != nil:
		return v.CSI.Driver, nil
	default:
		return takenOverInline(&v.VolumeSource), nil
	}
}

// driverOfClaim follows a claim to its volume.
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
	return takenOver(&volume.Spec.PersistentVolumeSource), nil
}

// The drivers that took over kinds of volumes that were once part of Kubernetes.
const (
	gcePD     = "pd.csi.storage.gke.io"
	awsEBS    = "ebs.csi.aws.com"
	cinder    = "cinder.csi.openstack.org"
	azureDisk = "disk.csi.azure.com"
	azureFile = "file.csi.azure.com"
	vsphere   = "csi.vsphere.vmware.com"
	portworx  = "pxd.portworx.com"
)

// takenOver is the driver that took over a persistent volume's kind.
func takenOver(v *corev1.PersistentVolumeSource) string {
	return firstOf(v.GCEPersistentDisk != nil, v.AWSElasticBlockStore != nil, v.Cinder != nil, v.AzureDisk != nil, v.AzureFile != nil, v.VsphereVolume != nil, v.PortworxVolume != nil)
}

// takenOverInline is the driver that took over the kind of a volume that stands in a pod.
func takenOverInline(v *corev1.VolumeSource) string {
	return firstOf(v.GCEPersistentDisk != nil, v.AWSElasticBlockStore != nil, v.Cinder != nil, v.AzureDisk != nil, v.AzureFile != nil, v.VsphereVolume != nil, v.PortworxVolume != nil)
}

// firstOf is the driver of the kind that is set, or nothing. The kinds come in the order of the drivers.
func firstOf(set ...bool) string {
	drivers := [...]string{gcePD, awsEBS, cinder, azureDisk, azureFile, vsphere, portworx}
	for i, driver := range drivers {
		if set[i] {
			return driver
		}
	}
	return ""
}
