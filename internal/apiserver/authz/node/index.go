package node

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
)

// key identifies an object of one resource.
type key struct{ namespace, name string }

// use is an object that pods of a node refer to.
type use struct {
	kind kind
	key
	node string
}

// index holds what the pods of each node refer to, and the secrets that are needed to mount the volumes of claims. It has an entry for each
// such object and node, and one for each such secret and claim.
type index struct {
	mu            sync.RWMutex
	uses          map[use]int32         // number of pods
	volumeSecrets map[key]map[key]int32 // number of volumes by secret and claim
}

// newIndex returns an index that is kept up to date by the events of pods and volumes.
func newIndex(reader objects.Reader) *index {
	ix := &index{uses: map[use]int32{}, volumeSecrets: map[key]map[key]int32{}}
	reader.FollowWith(pods, "spec.nodeName", func(before, after catalog.Object) {
		old, _ := before.(*corev1.Pod)
		pod, _ := after.(*corev1.Pod)
		if sameReferences(old, pod) {
			return
		}
		ix.mu.Lock()
		defer ix.mu.Unlock()
		ix.countPod(pod, 1) // before the decrement, so that the count of what both refer to does not drop to zero
		ix.countPod(old, -1)
	})
	reader.Follow(volumes, func(before, after catalog.Object) {
		old, _ := before.(*corev1.PersistentVolume)
		volume, _ := after.(*corev1.PersistentVolume)
		ix.mu.Lock()
		defer ix.mu.Unlock()
		ix.countVolume(volume, 1)
		ix.countVolume(old, -1)
	})
	return ix
}

func (ix *index) countPod(pod *corev1.Pod, by int32) {
	if pod == nil || pod.Spec.NodeName == "" {
		return
	}
	references(pod, func(kind kind, name string) {
		if name != "" {
			add(ix.uses, use{kind, key{pod.Namespace, name}, pod.Spec.NodeName}, by)
		}
	})
}

func (ix *index) countVolume(volume *corev1.PersistentVolume, by int32) {
	if volume == nil || volume.Spec.ClaimRef == nil {
		return
	}
	volumeSecrets(volume, func(namespace, name string) {
		if name == "" {
			return
		}
		secret := key{namespace, name}
		claims := ix.volumeSecrets[secret]
		if claims == nil {
			claims = map[key]int32{}
			ix.volumeSecrets[secret] = claims
		}
		if add(claims, claimOf(volume), by); len(claims) == 0 {
			delete(ix.volumeSecrets, secret)
		}
	})
}

// add changes a count and removes it when it reaches zero.
func add[K comparable](counts map[K]int32, k K, by int32) {
	if n := counts[k] + by; n > 0 {
		counts[k] = n
	} else {
		delete(counts, k)
	}
}

// used reports whether a pod of the node refers to the object, or to a claim whose volume needs it.
func (ix *index) used(kind kind, k key, node string) bool {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	if ix.uses[use{kind, k, node}] > 0 {
		return true
	}
	if kind == secret {
		for c := range ix.volumeSecrets[k] {
			if ix.uses[use{claim, c, node}] > 0 {
				return true
			}
		}
	}
	return false
}
