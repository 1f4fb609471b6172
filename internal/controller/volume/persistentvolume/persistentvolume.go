package persistentvolume

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	storagehelpers "k8s.io/component-helpers/storage/volume"

	"skiff/internal/controller"
	"skiff/internal/controller/volume"
)

const (
	// resyncPeriod is after how long a claim that is not bound is reconciled again, which repeats its Event.
	resyncPeriod = 15 * time.Second
	// workers is how many claims and volumes are reconciled at a time.
	workers = 10
	// mostWoken bounds how many claims a volume wakes that has become available. The others look again after resyncPeriod.
	mostWoken = 32
)

// binder reads the caches.
type binder struct {
	volumes     corelisters.PersistentVolumeLister
	claims      corelisters.PersistentVolumeClaimLister
	classes     storagelisters.StorageClassLister
	volumeIndex cache.Indexer // with volumesByClaim and availableByClass
	claimIndex  cache.Indexer // with claimsByVolume and unboundByClass
	podsOf      func(claim controller.Key) []*corev1.Pod
	reserved    reservations
	waiting     waiting
}

// New returns the loop. Its keys are PersistentVolumeClaims, and PersistentVolumes, which have no namespace.
func New(deps controller.Deps) controller.Loop {
	core, classes := deps.Informers.Core().V1(), deps.Informers.Storage().V1().StorageClasses()
	volumes, claims, pods := core.PersistentVolumes(), core.PersistentVolumeClaims(), core.Pods()
	index(volumes.Informer(), cache.Indexers{volumesByClaim: claimOfVolume, availableByClass: classOfAvailable})
	index(claims.Informer(), cache.Indexers{claimsByVolume: volumeOfClaim, unboundByClass: classOfUnbound})
	b := &binder{volumes: volumes.Lister(), claims: claims.Lister(), classes: classes.Lister(),
		volumeIndex: volumes.Informer().GetIndexer(), claimIndex: claims.Informer().GetIndexer(), podsOf: volume.PodsOf(pods.Informer())}
	return controller.Loop{
		Name: "persistentvolume-binder-controller", ServiceAccount: "persistent-volume-binder", EventSource: "persistentvolume-controller", QueueName: "claims", Workers: workers,
		Watch: []controller.Watch{
			{Informer: claims.Informer(), Type: &corev1.PersistentVolumeClaim{}, Keys: b.claimKeys},
			{Informer: volumes.Informer(), Type: &corev1.PersistentVolume{}, Keys: b.volumeKeys},
			{Informer: classes.Informer(), Type: &storagev1.StorageClass{}, Keys: b.classKeys},
			{Informer: pods.Informer(), Type: &corev1.Pod{}, Keys: func(_, _ metav1.Object) []controller.Key { return nil }},
		},
		Reconcile: b.reconcile,
	}
}

func (b *binder) reconcile(key controller.Key, _ time.Time) controller.Decision {
	if key.Namespace == "" {
		volume, err := b.volumes.Get(key.Name)
		b.reserved.observed(key.Name, volume)
		if err != nil {
			return controller.Nothing // it has been deleted
		}
		return b.decideVolume(volume)
	}
	b.waiting.remove(key)
	claim, err := b.claims.PersistentVolumeClaims(key.Namespace).Get(key.Name)
	if err != nil {
		return controller.Nothing
	}
	return b.decideClaim(claim)
}

// claimKeys returns a claim, and the volumes that are bound to it or that it is bound to.
func (b *binder) claimKeys(before, after metav1.Object) []controller.Key {
	claim, ok := after.(*corev1.PersistentVolumeClaim)
	if !ok {
		claim = before.(*corev1.PersistentVolumeClaim)
	}
	keys := []controller.Key{controller.KeyOf(claim)}
	if claim.Spec.VolumeName != "" {
		keys = append(keys, controller.Key{Name: claim.Spec.VolumeName})
	}
	for _, volume := range get[*corev1.PersistentVolume](b.volumeIndex, volumesByClaim, controller.KeyOf(claim).String()) {
		if volume.Name != claim.Spec.VolumeName {
			keys = append(keys, controller.KeyOf(volume))
		}
	}
	return keys
}

// volumeKeys returns a volume, the claims that are bound to it or that it is bound to, and claims that wait for one if it is available.
func (b *binder) volumeKeys(before, after metav1.Object) []controller.Key {
	old, _ := before.(*corev1.PersistentVolume)
	volume, alive := after.(*corev1.PersistentVolume)
	if !alive {
		volume = old
	}
	keys := []controller.Key{controller.KeyOf(volume)}
	for _, v := range []*corev1.PersistentVolume{old, volume} {
		if v != nil && v.Spec.ClaimRef != nil {
			keys = append(keys, refKey(v.Spec.ClaimRef))
		}
	}
	for _, claim := range get[*corev1.PersistentVolumeClaim](b.claimIndex, claimsByVolume, volume.Name) {
		keys = append(keys, controller.KeyOf(claim))
	}
	if !alive || !isAvailable(volume) || old != nil && old.ResourceVersion == volume.ResourceVersion {
		return keys
	}
	return append(keys, b.waiting.take(storagehelpers.GetPersistentVolumeClass(volume), mostWoken, func(key controller.Key) bool {
		claim, err := b.claims.PersistentVolumeClaims(key.Namespace).Get(key.Name)
		return err == nil && mayTake(claim, volume)
	})...)
}

// classKeys returns the claims that wait for a class: those that name it, and if it is a default class those that name none.
func (b *binder) classKeys(_, after metav1.Object) (keys []controller.Key) {
	class, ok := after.(*storagev1.StorageClass)
	if !ok {
		return nil
	}
	waiting := get[*corev1.PersistentVolumeClaim](b.claimIndex, unboundByClass, class.Name)
	if isDefault(class) {
		for _, claim := range get[*corev1.PersistentVolumeClaim](b.claimIndex, unboundByClass, "") {
			if !storagehelpers.PersistentVolumeClaimHasClass(claim) {
				waiting = append(waiting, claim)
			}
		}
	}
	for _, claim := range waiting {
		keys = append(keys, controller.KeyOf(claim))
	}
	return keys
}

func refKey(ref *corev1.ObjectReference) controller.Key {
	return controller.Key{Namespace: ref.Namespace, Name: ref.Name}
}
