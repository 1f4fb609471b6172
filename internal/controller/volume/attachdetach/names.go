package attachdetach

import (
	"crypto/sha256"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	// plugin is what the names of volumes of CSI drivers begin with in the status of nodes: plugin, driver, separator, handle.
	plugin    = "kubernetes.io/csi/"
	separator = "^"
)

// volumeName returns the name of a driver's volume in the status of nodes.
func volumeName(source *corev1.CSIPersistentVolumeSource) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName(plugin + source.Driver + separator + source.VolumeHandle)
}

// attachmentName returns the name of the VolumeAttachment of a volume to a node, or "" if it is no volume of a CSI driver.
func attachmentName(volume corev1.UniqueVolumeName, node string) string {
	name, ok := strings.CutPrefix(string(volume), plugin)
	driver, handle, found := strings.Cut(name, separator)
	if !ok || !found {
		return ""
	}
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+node)))
}
