package scheduling

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-helpers/storage/ephemeral"
)

// Storage holds what the plugins for volumes read. An object that does not exist is nil. Claims and volumes include what pods that are being bound have
// changed about them. Nobody may change the objects.
type Storage interface {
	Claim(namespace, name string) *corev1.PersistentVolumeClaim
	Volume(name string) *corev1.PersistentVolume
	// VolumesOfClass returns the volumes of a class; the class "" is that of volumes without one.
	VolumesOfClass(class string) []*corev1.PersistentVolume
	Class(name string) *storagev1.StorageClass
	CSINode(node string) *storagev1.CSINode
	CSIDriver(name string) *storagev1.CSIDriver
	Capacities() []*storagev1.CSIStorageCapacity
	// Attachments returns the VolumeAttachments of a node.
	Attachments(node string) []*storagev1.VolumeAttachment
}

// noStorage is a Storage without objects.
type noStorage struct{}

func (noStorage) Claim(string, string) *corev1.PersistentVolumeClaim { return nil }
func (noStorage) Volume(string) *corev1.PersistentVolume             { return nil }
func (noStorage) VolumesOfClass(string) []*corev1.PersistentVolume   { return nil }
func (noStorage) Class(string) *storagev1.StorageClass               { return nil }
func (noStorage) CSINode(string) *storagev1.CSINode                  { return nil }
func (noStorage) CSIDriver(string) *storagev1.CSIDriver              { return nil }
func (noStorage) Capacities() []*storagev1.CSIStorageCapacity        { return nil }
func (noStorage) Attachments(string) []*storagev1.VolumeAttachment   { return nil }

// WithStorage returns the snapshot with these volumes.
func (s *Snapshot) WithStorage(storage Storage) *Snapshot {
	out := *s
	out.storage = storage
	return &out
}

// podClaim is a PersistentVolumeClaim that a pod uses.
type podClaim struct {
	name      string
	ephemeral bool // it was created for the pod, which must own it
}

func (p *Pod) parseVolumes() {
	for i := range p.Spec.Volumes {
		switch v := &p.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			p.claims = append(p.claims, podClaim{name: v.PersistentVolumeClaim.ClaimName})
		case v.Ephemeral != nil:
			p.claims = append(p.claims, podClaim{ephemeral.VolumeClaimName(p.Pod, v), true})
		case isExclusiveDisk(v):
			p.exclusiveDisks = append(p.exclusiveDisks, v)
		}
	}
}

// usesVolumes reports whether the pod uses volumes that restrict on which nodes other pods may run.
func (p *Pod) usesVolumes() bool { return len(p.claims)+len(p.exclusiveDisks) > 0 }

// usesClaim reports whether the pod uses the claim.
func (p *Pod) usesClaim(claim *corev1.PersistentVolumeClaim, withEphemeral bool) bool {
	if p.Namespace != claim.Namespace {
		return false
	}
	for _, c := range p.claims {
		if c.name == claim.Name && (withEphemeral || !c.ephemeral) {
			return true
		}
	}
	return false
}

// claimNotFound returns the API's error for a claim that does not exist.
func claimNotFound(name string) error {
	return apierrors.NewNotFound(corev1.Resource("persistentvolumeclaim"), name)
}

// claim returns a claim of the pod, or why it cannot be used.
func (p *Pod) claim(c podClaim, storage Storage) (*corev1.PersistentVolumeClaim, error) {
	claim := storage.Claim(p.Namespace, c.name)
	switch {
	case claim == nil && c.ephemeral:
		return nil, fmt.Errorf("waiting for ephemeral volume controller to create the persistentvolumeclaim %q", c.name)
	case claim == nil:
		return nil, claimNotFound(c.name)
	case claim.Status.Phase == corev1.ClaimLost:
		return nil, fmt.Errorf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", claim.Name, claim.Spec.VolumeName)
	case claim.DeletionTimestamp != nil:
		return nil, fmt.Errorf("persistentvolumeclaim %q is being deleted", claim.Name)
	case c.ephemeral:
		return claim, ephemeral.VolumeIsForPod(p.Pod, claim)
	}
	return claim, nil
}
