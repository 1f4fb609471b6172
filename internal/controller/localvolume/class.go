package localvolume

import (
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"skiff/internal/controller"
	"skiff/internal/localvolume"
)

const (
	// className is the name of the default StorageClass.
	className = "local"
	// ownerLabel marks the class that this loop created.
	ownerLabel, owner = "app.kubernetes.io/managed-by", loopName + ".skiff"
	// defaultAnnotation marks default StorageClasses.
	defaultAnnotation = "storageclass.kubernetes.io/is-default-class"
	// createdAnnotation marks the CSIDriver when the class has been created: who deletes or changes the class wants it so.
	createdAnnotation = "local.skiff/class-created"
)

// reconcileClass creates the StorageClass and the CSIDriver once. When local storage has been disabled it deletes the class that it created; the volumes that there are
// need the CSIDriver.
func (l *loop) reconcileClass() controller.Decision {
	class, err := l.classes.Get(className)
	if err != nil && !apierrors.IsNotFound(err) {
		return controller.Decision{Err: err}
	}
	driver, err := l.drivers.Get(localvolume.Driver)
	if err != nil && !apierrors.IsNotFound(err) {
		return controller.Decision{Err: err}
	}
	hasClass, created := class != nil && class.Name != "", driver != nil && driver.Annotations[createdAnnotation] != ""
	var actions []controller.Action
	switch {
	case l.disabled && hasClass && class.Labels[ownerLabel] == owner:
		actions = append(actions, controller.Delete(class, metav1.DeleteOptions{}))
	case !l.disabled && !created && !hasClass:
		all, err := l.classes.List(labels.Everything())
		if err != nil {
			return controller.Decision{Err: err}
		}
		actions = append(actions, controller.Create(newClass(all)))
	}
	switch {
	case l.disabled && created:
		driver = driver.DeepCopy()
		delete(driver.Annotations, createdAnnotation)
		actions = append(actions, controller.Update(driver))
	case !l.disabled && driver == nil:
		actions = append(actions, controller.Create(newDriver()))
	case !l.disabled && !created:
		driver = driver.DeepCopy()
		metav1.SetMetaDataAnnotation(&driver.ObjectMeta, createdAnnotation, "true")
		actions = append(actions, controller.Update(driver))
	}
	return controller.Decision{Actions: actions}
}

// newClass returns the class. It is the default unless there is another default already: of several the newest would count.
func newClass(all []*storagev1.StorageClass) *storagev1.StorageClass {
	class := &storagev1.StorageClass{
		ObjectMeta:           metav1.ObjectMeta{Name: className, Labels: map[string]string{ownerLabel: owner}},
		Provisioner:          localvolume.Driver,
		VolumeBindingMode:    ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		AllowVolumeExpansion: ptr.To(true),
	}
	for _, c := range all {
		if c.Annotations[defaultAnnotation] == "true" || c.Annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true" {
			return class
		}
	}
	class.Annotations = map[string]string{defaultAnnotation: "true"}
	return class
}

func newDriver() *storagev1.CSIDriver {
	return &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: localvolume.Driver, Annotations: map[string]string{createdAnnotation: "true"}},
		Spec: storagev1.CSIDriverSpec{
			AttachRequired:       ptr.To(false),
			FSGroupPolicy:        ptr.To(storagev1.FileFSGroupPolicy),
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent},
		},
	}
}
