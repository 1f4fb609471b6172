package protection

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"skiff/internal/controller"
)

// NewClaims returns the loop that protects PersistentVolumeClaims. Its keys are PersistentVolumeClaims.
func NewClaims(deps controller.Deps) controller.Loop {
	claims, pods := deps.Informers.Core().V1().PersistentVolumeClaims(), deps.Informers.Core().V1().Pods()
	find, used := claims.Lister(), pods.Lister()
	return controller.Loop{
		Name: "persistentvolumeclaim-protection-controller", ServiceAccount: "pvc-protection-controller", QueueName: "pvcprotection",
		Watch: []controller.Watch{
			{Informer: claims.Informer(), Type: &corev1.PersistentVolumeClaim{}},
			{Informer: pods.Informer(), Type: &corev1.Pod{}, Keys: releasedClaims},
		},
		Reconcile: func(key controller.Key, _ time.Time) controller.Decision {
			claim, err := find.PersistentVolumeClaims(key.Namespace).Get(key.Name)
			if err != nil {
				return controller.Nothing
			}
			return decide(claim, claimFinalizer, func() bool {
				all, err := used.Pods(key.Namespace).List(labels.Everything())
				for _, pod := range all {
					if uses(pod, claim) {
						return true
					}
				}
				return err != nil
			}, checkUnused(claim))
		},
	}
}

// releasedClaims returns the claims that may be unused after a change of a pod.
func releasedClaims(before, after metav1.Object) (keys []controller.Key) {
	was, _ := before.(*corev1.Pod)
	is, _ := after.(*corev1.Pod)
	if is != nil && is.DeletionTimestamp == nil && (was == nil || was.UID == is.UID) {
		return nil
	}
	for _, pod := range []*corev1.Pod{was, is} {
		if pod == nil {
			continue
		}
		for i := range pod.Spec.Volumes {
			if name := claimOf(pod, &pod.Spec.Volumes[i]); name != "" {
				keys = append(keys, controller.Key{Namespace: pod.Namespace, Name: name})
			}
		}
	}
	return keys
}

// NewVolumes returns the loop that protects PersistentVolumes. Its keys are PersistentVolumes.
func NewVolumes(deps controller.Deps) controller.Loop {
	volumes := deps.Informers.Core().V1().PersistentVolumes()
	find := volumes.Lister()
	return controller.Loop{
		Name: "persistentvolume-protection-controller", ServiceAccount: "pv-protection-controller", QueueName: "pvprotection",
		Watch: []controller.Watch{{Informer: volumes.Informer(), Type: &corev1.PersistentVolume{}}},
		Reconcile: func(key controller.Key, _ time.Time) controller.Decision {
			volume, err := find.Get(key.Name)
			if err != nil {
				return controller.Nothing
			}
			return decide(volume, volumeFinalizer, func() bool { return volume.Status.Phase == corev1.VolumeBound })
		},
	}
}

// NewClasses returns the loop that protects VolumeAttributesClasses. Its keys are VolumeAttributesClasses.
func NewClasses(deps controller.Deps) controller.Loop {
	classes := deps.Informers.Storage().V1().VolumeAttributesClasses()
	claims, volumes := deps.Informers.Core().V1().PersistentVolumeClaims(), deps.Informers.Core().V1().PersistentVolumes()
	find, allClaims, allVolumes := classes.Lister(), claims.Lister(), volumes.Lister()
	return controller.Loop{
		Name: "volumeattributesclass-protection-controller", QueueName: "vacprotection",
		Watch: []controller.Watch{
			{Informer: classes.Informer(), Type: &storagev1.VolumeAttributesClass{}},
			{Informer: claims.Informer(), Type: &corev1.PersistentVolumeClaim{}, Keys: releasedClasses},
			{Informer: volumes.Informer(), Type: &corev1.PersistentVolume{}, Keys: releasedClasses},
		},
		Reconcile: func(key controller.Key, _ time.Time) controller.Decision {
			class, err := find.Get(key.Name)
			if err != nil {
				return controller.Nothing
			}
			return decide(class, classFinalizer, func() bool {
				claims, err := allClaims.List(labels.Everything())
				for _, claim := range claims {
					if _, ok := classesOf(claim)[class.Name]; ok {
						return true
					}
				}
				if err != nil {
					return true
				}
				volumes, err := allVolumes.List(labels.Everything())
				for _, volume := range volumes {
					if _, ok := classesOf(volume)[class.Name]; ok {
						return true
					}
				}
				return err != nil
			})
		},
	}
}

// classesOf returns the VolumeAttributesClasses that a claim or a volume uses, or is about to.
func classesOf(obj metav1.Object) map[string]struct{} {
	names := map[string]struct{}{}
	add := func(name *string) {
		if name != nil && *name != "" {
			names[*name] = struct{}{}
		}
	}
	switch o := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		add(o.Spec.VolumeAttributesClassName)
		add(o.Status.CurrentVolumeAttributesClassName)
		if o.Status.ModifyVolumeStatus != nil {
			add(&o.Status.ModifyVolumeStatus.TargetVolumeAttributesClassName)
		}
	case *corev1.PersistentVolume:
		add(o.Spec.VolumeAttributesClassName)
	}
	return names
}

// releasedClasses returns the classes that may be unused after a change of a claim or volume.
func releasedClasses(before, after metav1.Object) (keys []controller.Key) {
	if before == nil {
		return nil
	}
	now := map[string]struct{}{}
	if after != nil {
		now = classesOf(after)
	}
	for name := range classesOf(before) {
		if _, still := now[name]; !still {
			keys = append(keys, controller.Key{Name: name})
		}
	}
	return keys
}
