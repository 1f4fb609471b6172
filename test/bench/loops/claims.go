package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

const (
	provisioner = "loops.example.com"
	clients     = 32 // how many requests create claims and volumes at a time
)

// boundClaims creates volumes, then as many claims that each take one, and returns how long it took until all claims were Bound.
func boundClaims(ctx context.Context, c kubernetes.Interface) (time.Duration, error) {
	err := inParallel(func(n int) error { return createVolume(ctx, c, fmt.Sprintf("loops-%d", n), "", nil) })
	if err != nil {
		return 0, err
	}
	err = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		volumes, err := c.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return false, err
		}
		for _, v := range volumes.Items {
			if v.Status.Phase != corev1.VolumeAvailable {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return 0, err
	}
	took, err := createClaims(ctx, c, "", nil)
	return took, errors.Join(err, removeClaims(ctx, c))
}

// provisionedClaims creates claims of a class whose provisioner is this program, and returns how long it took until all were Bound. The provisioner
// creates a volume as soon as the claim's annotation asks for it.
func provisionedClaims(ctx context.Context, c kubernetes.Interface) (time.Duration, error) {
	_, err := c.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "loops"}, Provisioner: provisioner,
		ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimRetain)}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return 0, err
	}
	asked := map[string]bool{}
	var creating sync.WaitGroup
	failed := make(chan error, *claims)
	took, err := createClaims(ctx, c, "loops", func(claim *corev1.PersistentVolumeClaim) {
		if claim.Annotations["volume.kubernetes.io/storage-provisioner"] != provisioner || asked[claim.Name] {
			return
		}
		asked[claim.Name] = true
		creating.Go(func() {
			if err := createVolume(ctx, c, "pvc-"+string(claim.UID), "loops", claim); err != nil {
				failed <- err
			}
		})
	})
	creating.Wait()
	close(failed)
	for e := range failed {
		err = errors.Join(err, e)
	}
	return took, errors.Join(err, removeClaims(ctx, c))
}

// createClaims creates claims of a class and returns how long it took until all were Bound. changed is called with each change of one.
func createClaims(ctx context.Context, c kubernetes.Interface, class string, changed func(*corev1.PersistentVolumeClaim)) (time.Duration, error) {
	list, err := c.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	created := make(chan error, 1)
	go func() {
		created <- inParallel(func(n int) error {
			_, err := c.CoreV1().PersistentVolumeClaims(namespace).Create(ctx, &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("loops-%d", n), Labels: map[string]string{"app": "loops"}},
				Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}, metav1.CreateOptions{})
			return err
		})
	}()
	err = untilBound(ctx, c, list.ResourceVersion, changed)
	took := time.Since(began)
	return took, errors.Join(err, <-created)
}

// untilBound returns when all claims are Bound; version is that of a list without them.
func untilBound(ctx context.Context, c kubernetes.Interface, version string, changed func(*corev1.PersistentVolumeClaim)) error {
	bound := map[string]bool{}
	return follow(ctx, c.CoreV1().PersistentVolumeClaims(namespace).Watch, version, func(claim *corev1.PersistentVolumeClaim) bool {
		if changed != nil {
			changed(claim)
		}
		if claim.Status.Phase == corev1.ClaimBound {
			bound[claim.Name] = true
		}
		return len(bound) == *claims
	})
}

// createVolume creates a volume, for a claim if that is not nil.
func createVolume(ctx context.Context, c kubernetes.Interface, name, class string, claim *corev1.PersistentVolumeClaim) error {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "loops"}}, Spec: corev1.PersistentVolumeSpec{
		StorageClassName: class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: provisioner, VolumeHandle: name}}}}
	if claim != nil {
		v.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": provisioner}
		v.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
	}
	_, err := c.CoreV1().PersistentVolumes().Create(ctx, v, metav1.CreateOptions{})
	return err
}

// removeClaims deletes claims and volumes and returns when they are gone.
func removeClaims(ctx context.Context, c kubernetes.Interface) error {
	all := metav1.ListOptions{LabelSelector: selector}
	if err := c.CoreV1().PersistentVolumeClaims(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, all); err != nil {
		return err
	}
	if err := c.CoreV1().PersistentVolumes().DeleteCollection(ctx, metav1.DeleteOptions{}, all); err != nil {
		return err
	}
	return wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		claims, err := c.CoreV1().PersistentVolumeClaims(namespace).List(ctx, all)
		if err != nil {
			return false, err
		}
		volumes, err := c.CoreV1().PersistentVolumes().List(ctx, all)
		return err == nil && len(claims.Items)+len(volumes.Items) == 0, err
	})
}

// inParallel calls a function for each claim, several at a time.
func inParallel(do func(n int) error) error {
	errs := make([]error, *claims)
	slots := make(chan struct{}, clients)
	var running sync.WaitGroup
	for n := range *claims {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			errs[n] = do(n)
		})
	}
	running.Wait()
	return errors.Join(errs...)
}
