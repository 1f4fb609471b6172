// Package localvolume is the local-volume-provisioner-controller: what external-provisioner and external-resizer are to a CSI driver, it is to local.skiff, the driver of
// volumes on the nodes' own disks (kubelet/disk). It creates the default StorageClass "local" too.
//
// The key of a claim is its own: for a claim that waits for a volume on the node that the scheduler chose it has that node create one and creates the PersistentVolume
// (provision.go), and when the claim asks for more it has the node expand the volume (expand.go). The key of a PersistentVolume is its name after "volumes/":
// when its claim is gone the volume is deleted, or kept (delete.go). The key "class" is for what is created at the start (class.go).
//
// A volume has the name of the claim's UID, "pvc-…", on the node and in the API, and every call can be repeated: after a crash at any point the next
// reconcile goes on, and a claim never gets two volumes. Only a node that certainly has no volume for a claim, because its disk is too full, is given up for another.
//
// What differs from external-provisioner and external-resizer:
//   - A class with volumeBindingMode Immediate has no node to create its volumes on: its claims get an Event that says so.
//   - The volume of a node that no longer exists is not deleted until the node is back; the PersistentVolume stays, with an Event that says so.
//
// It must not import the API server, its store or its cache, or another component: it reaches nodes through the API, with the room localvolume.
package localvolume
