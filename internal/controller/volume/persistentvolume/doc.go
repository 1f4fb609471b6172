// Package persistentvolume is the loop that binds PersistentVolumeClaims and PersistentVolumes, as upstream's PV controller. A binding is two
// references: the volume's spec.claimRef, which is written first and holds the claim's uid, and the claim's spec.volumeName.
//
// A decision is one step: the volume's claimRef, the claim's volumeName, the volume's status, the claim's status. The next step is decided when the
// informers have observed the step before. Two claims that are decided at the same time do not choose the same volume: the first choice is kept in
// memory until the informer has observed a newer version of that volume. That only spares conflicts; what keeps a volume from having two claims is that
// each write carries the resourceVersion that it was decided from.
//
// Volumes for claims are made by others, who are told by the annotations volume.kubernetes.io/storage-provisioner and its older form. A claim of a class
// with WaitForFirstConsumer waits until the scheduler has chosen a node in volume.kubernetes.io/selected-node, or has chosen a volume in its claimRef.
//
// What differs from upstream:
//   - Nothing waits for a period of 15 seconds but what nobody announces: a new volume wakes the claims that it suits, a new class those that wait for it.
//   - A volume whose creator reserved it for a claim is taken before any other, not only before those with the same or more access modes.
//   - A volume is Bound after its claim refers to it, not before: so never two volumes are Bound to one claim, even if two loops run.
//   - Before a claim is called Lost, the API is asked whether its volume is really gone.
//   - No volume is provisioned, recycled or deleted in process. Upstream recycles hostPath and nfs volumes with a pod, and deletes hostPath volumes below
//     /tmp on the machine of the controllers; here they become Failed, with the event that upstream has for volumes that it cannot recycle or delete.
//   - The metrics pv_collector_* are left out.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package persistentvolume
