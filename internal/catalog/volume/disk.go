package volume

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

func checkEmptyDir(at *check.Part, e *corev1.EmptyDirVolumeSource) {
	if e.SizeLimit != nil && e.SizeLimit.Sign() < 0 {
		at.Forbidden("sizeLimit", "SizeLimit field must be a valid resource quantity")
	}
	if e.Mode != nil && (*e.Mode < 0 || *e.Mode > 0o1777) {
		at.Invalid("mode", *e.Mode, "must be a number between 0 and 01777 (octal), both inclusive")
	}
}

func checkHostPath(at *check.Part, h *corev1.HostPathVolumeSource) {
	if h.Path == "" {
		at.Required("path", "")
		return
	}
	checkNoBacksteps(at, "path", h.Path)
	if h.Type != nil {
		check.OneOf(at, "type", *h.Type, corev1.HostPathUnset, corev1.HostPathBlockDev, corev1.HostPathCharDev, corev1.HostPathDirectory,
			corev1.HostPathDirectoryOrCreate, corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket)
	}
}

func checkLocal(at *check.Part, l *corev1.LocalVolumeSource) {
	if l.Path == "" {
		at.Required("path", "")
		return
	}
	checkNoBacksteps(at, "path", l.Path)
}

func checkGitRepo(at *check.Part, g *corev1.GitRepoVolumeSource) {
	required(at, "repository", g.Repository)
	checkDescending(at, "directory", g.Directory)
}

func checkGCEDisk(at *check.Part, d *corev1.GCEPersistentDiskVolumeSource) {
	required(at, "pdName", d.PDName)
	checkPartition(at, d.Partition)
}

func checkEBS(at *check.Part, d *corev1.AWSElasticBlockStoreVolumeSource) {
	required(at, "volumeID", d.VolumeID)
	checkPartition(at, d.Partition)
}

// checkPartition allows zero, which means the whole disk, though the message does not say so.
func checkPartition(at *check.Part, partition int32) {
	if partition < 0 || partition > 255 {
		at.Invalid("partition", partition, validation.InclusiveRangeError(1, 255))
	}
}

func checkVsphere(at *check.Part, d *corev1.VsphereVirtualDiskVolumeSource) {
	required(at, "volumePath", d.VolumePath)
}

func checkPhoton(at *check.Part, d *corev1.PhotonPersistentDiskVolumeSource) {
	required(at, "pdID", d.PdID)
}

func checkAzureFile(at *check.Part, secret, share string) {
	required(at, "secretName", secret)
	required(at, "shareName", share)
}

func checkAzureDisk(at *check.Part, d *corev1.AzureDiskVolumeSource) {
	required(at, "diskName", d.DiskName)
	required(at, "diskURI", d.DataDiskURI)
	if d.CachingMode != nil {
		check.OneOf(at, "cachingMode", *d.CachingMode, corev1.AzureDataDiskCachingNone, corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite)
	}
	if d.Kind == nil {
		return
	}
	check.OneOf(at, "kind", *d.Kind, corev1.AzureDedicatedBlobDisk, corev1.AzureManagedDisk, corev1.AzureSharedBlobDisk)
	prefix, form := "https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
	if *d.Kind == corev1.AzureManagedDisk {
		prefix, form = "/subscriptions/", "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
	}
	if !strings.HasPrefix(d.DataDiskURI, prefix) {
		at.Add(field.NotSupported(at.Path("diskURI"), d.DataDiskURI, []string{form}))
	}
}

// checkDescending validates a relative path without "..".
func checkDescending(at *check.Part, name, value string) {
	if path.IsAbs(value) {
		at.Invalid(name, value, "must be a relative path")
	}
	checkNoBacksteps(at, name, value)
}

// checkFilePath validates the path of a file that the kubelet writes into a volume, where names that begin with
// two dots are reserved for it.
func checkFilePath(at *check.Part, name, value string) {
	checkDescending(at, name, value)
	if strings.HasPrefix(value, "..") && !strings.HasPrefix(value, "../") {
		at.Invalid(name, value, "must not start with '..'")
	}
}

func checkNoBacksteps(at *check.Part, name, value string) {
	if strings.Contains(value, "..") && slices.Contains(strings.Split(value, "/"), "..") {
		at.Invalid(name, value, "must not contain '..'")
	}
}

func required(at *check.Part, name, value string) {
	if value == "" {
		at.Required(name, "")
	}
}

func invalidKey(parent *field.Path, key, detail string) *field.Error {
	return field.Invalid(parent.Key(key), key, detail)
}
