package persistentvolume

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	storagehelpers "k8s.io/component-helpers/storage/volume"
)

const (
	volumesByClaim   = "binder/claim"     // volumes by namespace/name of their claimRef
	availableByClass = "binder/available" // volumes that any claim may take, by class
	claimsByVolume   = "binder/volume"    // claims by spec.volumeName
	unboundByClass   = "binder/unbound"   // claims that have not been bound, by class
)

// index adds indexes to an informer.
func index(informer cache.SharedIndexInformer, indexers cache.Indexers) {
	if err := informer.AddIndexers(indexers); err != nil {
		panic(fmt.Sprintf("indexing for the volume binder: %v", err)) // a mistake in the program: the names are its own
	}
}

// get returns the objects under a value of an index.
func get[T any](indexer cache.Indexer, name, value string) []T {
	found, _ := indexer.ByIndex(name, value) // the index exists
	all := make([]T, len(found))
	for i, obj := range found {
		all[i] = obj.(T)
	}
	return all
}

func claimOfVolume(obj any) ([]string, error) {
	if v, ok := obj.(*corev1.PersistentVolume); ok && v.Spec.ClaimRef != nil {
		return []string{refKey(v.Spec.ClaimRef).String()}, nil
	}
	return nil, nil
}

// isAvailable reports whether any claim may take a volume.
func isAvailable(v *corev1.PersistentVolume) bool {
	return v.Spec.ClaimRef == nil && v.Status.Phase == corev1.VolumeAvailable && v.DeletionTimestamp == nil
}

func classOfAvailable(obj any) ([]string, error) {
	if v, ok := obj.(*corev1.PersistentVolume); ok && isAvailable(v) {
		return []string{storagehelpers.GetPersistentVolumeClass(v)}, nil
	}
	return nil, nil
}

func volumeOfClaim(obj any) ([]string, error) {
	if c, ok := obj.(*corev1.PersistentVolumeClaim); ok && c.Spec.VolumeName != "" {
		return []string{c.Spec.VolumeName}, nil
	}
	return nil, nil
}

func classOfUnbound(obj any) ([]string, error) {
	if c, ok := obj.(*corev1.PersistentVolumeClaim); ok && !metav1.HasAnnotation(c.ObjectMeta, storagehelpers.AnnBindCompleted) {
		return []string{storagehelpers.GetPersistentVolumeClaimClass(c)}, nil
	}
	return nil, nil
}
