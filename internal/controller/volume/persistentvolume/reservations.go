package persistentvolume

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// reservations holds which volumes have been chosen for which claims and are still being written. They are bounded by the number of workers and of
// volumes that the informer lags behind with.
type reservations struct {
	mu       sync.Mutex
	byVolume map[string]reservation
}

// reservation holds as long as the volume has the resourceVersion that it was chosen at.
type reservation struct {
	claim   types.UID
	version string
}

// choose calls find, which chooses one of the volumes that are not reserved for another claim, and reserves what it returns. No other choice is made
// meanwhile.
func (r *reservations) choose(claim types.UID, find func(free func(*corev1.PersistentVolume) bool) *corev1.PersistentVolume) *corev1.PersistentVolume {
	r.mu.Lock()
	defer r.mu.Unlock()
	volume := find(func(v *corev1.PersistentVolume) bool {
		held, ok := r.byVolume[v.Name]
		return !ok || held.version != v.ResourceVersion || held.claim == claim
	})
	if volume != nil {
		if r.byVolume == nil {
			r.byVolume = map[string]reservation{}
		}
		r.byVolume[volume.Name] = reservation{claim, volume.ResourceVersion}
	}
	return volume
}

// release ends a claim's reservation of a volume.
func (r *reservations) release(volume string, claim types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byVolume[volume].claim == claim {
		delete(r.byVolume, volume)
	}
}

// observed ends the reservation of a volume that has changed since it was chosen, or has been deleted: then it is nil.
func (r *reservations) observed(name string, volume *corev1.PersistentVolume) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if volume == nil || r.byVolume[name].version != volume.ResourceVersion {
		delete(r.byVolume, name)
	}
}
