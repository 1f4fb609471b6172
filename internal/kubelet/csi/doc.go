// Package csi mounts the volumes of CSI drivers for the kubelet, and keeps the node's CSINode.
//
// A driver is a csi.NodeServer, the Go interface of the specification's node service: one that runs in this process is called as it is, one
// behind a socket through a client with the same interface. A volume is staged once per node and published for each pod; both calls are
// idempotent in the specification, and so is everything here. What was mounted is on the disk as upstream lays it out:
//
//	<root>/plugins/kubernetes.io/csi/<driver>/<sha256 of the handle>/globalmount, and vol_data.json beside it: a volume that is staged
//	<root>/plugins/kubernetes.io/csi/volumeDevices/{staging,publish}/<name>: the same of a block device
//	<root>/pods/<uid>/volumes/kubernetes.io~csi/<name>/mount, and vol_data.json beside it: a volume that a pod uses
//
// A pod's vol_data.json is written before the first call to the driver, and removed after the last: whatever a process that was killed left behind
// is undone when the pod is torn down. A volume is unstaged when the last pod on the node with such a file gives it up.
//
// What differs from upstream: SELinux contexts are not mounted (SELinuxMount of a CSIDriver is ignored); a pod's block device has its vol_data.json
// in the pod's directory, too.
//
// It must not import the API server, its store or its cache, nor another component: the kubelet meets them only at the API, through client.
package csi
