package storageversionmigrator

import (
	"cmp"
	"slices"
	"time"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	listers "k8s.io/client-go/listers/storagemigration/v1"

	"skiff/internal/controller"
)

// loopName is the loop's name, and the field manager of the patches that migrate objects.
const loopName = "storage-version-migrator-controller"

type migration = storagemigrationv1.StorageVersionMigration

// New returns the loop. Its keys are resources: the namespace of a key is the group.
func New(deps controller.Deps) controller.Loop {
	migrations := deps.Informers.Storagemigration().V1().StorageVersionMigrations()
	lister := migrations.Lister()
	return controller.Loop{
		Name: loopName,
		Watch: []controller.Watch{{Informer: migrations.Informer(), Type: &migration{}, Keys: func(before, after metav1.Object) []controller.Key {
			if after == nil {
				after = before
			}
			return []controller.Key{resourceKey(after.(*migration))}
		}}},
		Reconcile: func(key controller.Key, now time.Time) controller.Decision {
			return decide(ofResource(lister, key), now)
		},
	}
}

func resourceKey(m *migration) controller.Key {
	return controller.Key{Namespace: m.Spec.Resource.Group, Name: m.Spec.Resource.Resource}
}

// ofResource returns the migrations of a resource, oldest first.
func ofResource(lister listers.StorageVersionMigrationLister, key controller.Key) []*migration {
	all, _ := lister.List(labels.Everything()) // a cache does not fail
	all = slices.DeleteFunc(all, func(m *migration) bool { return resourceKey(m) != key })
	slices.SortFunc(all, func(a, b *migration) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return all
}
