package persistentvolume

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	storagehelpers "k8s.io/component-helpers/storage/volume"

	"skiff/internal/controller"
	"skiff/internal/controller/volume"
)

// inTree is what the names of provisioners begin with that run in the process of the loop. There are none.
const inTree = "kubernetes.io/"

// withMigration returns annotations that say which CSI driver does the work of the provisioner that they name under the first of keys that is set, or
// nil if they are right.
func withMigration(annotations map[string]string, keys ...string) map[string]string {
	for _, key := range keys {
		provisioner, ok := annotations[key]
		if !ok {
			continue
		}
		driver := volume.MigratedTo[provisioner]
		if annotations[storagehelpers.AnnMigratedTo] == driver {
			return nil
		}
		changed := maps.Clone(annotations)
		if driver == "" {
			delete(changed, storagehelpers.AnnMigratedTo)
		} else {
			changed[storagehelpers.AnnMigratedTo] = driver
		}
		return changed
	}
	return nil
}

// provision decides about a claim for which a volume is to be made: its annotations tell the provisioner of its class.
func (b *binder) provision(claim *corev1.PersistentVolumeClaim) controller.Decision {
	class, err := b.classes.Get(storagehelpers.GetPersistentVolumeClaimClass(claim))
	if err != nil {
		return failedProvisioning(claim, err.Error())
	}
	provisioner := class.Provisioner
	if driver := volume.MigratedTo[provisioner]; driver != "" {
		provisioner = driver
	} else if strings.HasPrefix(provisioner, inTree) {
		return failedProvisioning(claim, "no volume plugin matched name: "+provisioner)
	}
	if claim.Annotations[storagehelpers.AnnStorageProvisioner] != provisioner {
		changed := claim.DeepCopy()
		if changed.Annotations == nil {
			changed.Annotations = map[string]string{}
		}
		changed.Annotations[storagehelpers.AnnStorageProvisioner] = provisioner
		changed.Annotations[storagehelpers.AnnBetaStorageProvisioner] = provisioner
		return do(controller.Update(changed))
	}
	return controller.Decision{RequeueAfter: resyncPeriod, Actions: []controller.Action{controller.Event(claim, corev1.EventTypeNormal, "ExternalProvisioning",
		"Waiting for a volume to be created either by the external provisioner '%s' or manually by the system administrator. "+
			"If volume creation is delayed, please verify that the provisioner is running and correctly registered.", provisioner)}}
}

func failedProvisioning(claim *corev1.PersistentVolumeClaim, why string) controller.Decision {
	return controller.Decision{RequeueAfter: resyncPeriod, Actions: []controller.Action{controller.Event(claim, corev1.EventTypeWarning, "ProvisioningFailed", "%s", why)}}
}

func isDefault(class *storagev1.StorageClass) bool {
	return class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" || class.Annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true"
}

// defaultClass returns the newest default class, or nil.
func (b *binder) defaultClass() *storagev1.StorageClass {
	all, _ := b.classes.List(labels.Everything()) // a cache does not fail
	all = slices.DeleteFunc(all, func(c *storagev1.StorageClass) bool { return !isDefault(c) })
	if len(all) == 0 {
		return nil
	}
	return slices.MinFunc(all, func(x, y *storagev1.StorageClass) int {
		return cmp.Or(y.CreationTimestamp.Compare(x.CreationTimestamp.Time), cmp.Compare(x.Name, y.Name))
	})
}
