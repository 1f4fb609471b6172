// Package attachdetach is the loop that attaches volumes of CSI drivers to the nodes of the pods that use them, as upstream's attach/detach controller.
// It creates and deletes VolumeAttachments, which the driver's external-attacher acts on, and reports what is attached in the node's
// status.volumesAttached, which the kubelet waits for before it mounts.
//
// A key is a node: what is attached to it is decided in one place, so that the list in its status has one writer. A volume that may be written by one
// node only is attached to another one when its VolumeAttachment to the first is gone; two nodes that are decided at the same time do not both get it.
//
// The kubelet and the loop agree on who may use a volume by the order of their writes. The kubelet first adds it to status.volumesInUse and then reads
// status.volumesAttached; the loop first removes it from status.volumesAttached and then reads status.volumesInUse from the API.
//
// A volume is detached though its node reports it as in use when the node has the taint node.kubernetes.io/out-of-service, or six minutes after its last
// pod ended if the node is not ready.
//
// What differs from upstream:
//   - What is attached is read from VolumeAttachments and node status each time, not remembered, so that nothing is in doubt after a restart. Remembered
//     are only when a detach was asked for first, and which Events were sent.
//   - Nothing is looked at periodically: each change wakes the nodes that it concerns.
//   - Before a detach that is not forced the node is read from the API, even after six minutes.
//   - Volumes of plugins that were part of Kubernetes (awsElasticBlockStore, gcePersistentDisk and so on, in a PersistentVolume or in a pod) are not
//     translated to those of CSI drivers, and iscsi and fc volumes are not attached: a pod with one of them does not start. Nor are the metrics
//     attachdetach_controller_* and storage_count_attachable_volumes_in_use there.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package attachdetach
