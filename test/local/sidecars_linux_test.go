package local

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"skiff/internal/cluster/local"
)

const (
	provisionerAnnotation = "volume.kubernetes.io/storage-provisioner"
	provisionedBy         = "pv.kubernetes.io/provisioned-by"
	sidecarFinalizer      = "sidecars.test/" + sharedDriver
)

// sidecars are what external-provisioner, external-attacher and external-resizer are to a driver, in one loop that looks at everything again and again. Each
// step can be repeated, whichever process is killed meanwhile.
type sidecars struct {
	api        kubernetes.Interface
	controller csi.ControllerClient
	nodes      map[string]local.State
	violation  func(format string, args ...any)
	failures   int
	last       error
}

// run works until ctx ends.
func (s *sidecars) run(ctx context.Context, t testing.TB) {
	for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		if err := errors.Join(s.provision(ctx), s.delete(ctx), s.attach(ctx), s.expand(ctx)); err != nil && ctx.Err() == nil {
			s.failures, s.last = s.failures+1, err // the API server or the driver is being killed: again
		}
	}
	t.Logf("the driver's sidecars failed %d times, the last time: %v", s.failures, s.last)
}

// each does something with each of some objects, and returns the errors. None of them keeps the others waiting.
func each[T any](list []T, do func(*T) error) error {
	var all []error
	for i := range list {
		all = append(all, do(&list[i]))
	}
	return errors.Join(all...)
}

func (s *sidecars) claims(ctx context.Context) ([]corev1.PersistentVolumeClaim, error) {
	ctx, cancel := briefly(ctx)
	defer cancel()
	list, err := s.api.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(c corev1.PersistentVolumeClaim) bool { return c.Annotations[provisionerAnnotation] != sharedDriver }), nil
}

var sharedCapability = &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
	AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}

// provision creates volumes for claims that have none.
func (s *sidecars) provision(ctx context.Context) error {
	claims, err := s.claims(ctx)
	if err != nil {
		return err
	}
	return each(claims, func(c *corev1.PersistentVolumeClaim) error {
		if c.Spec.VolumeName != "" || c.DeletionTimestamp != nil {
			return nil
		}
		ctx, cancel := briefly(ctx)
		defer cancel()
		name := "pvc-" + string(c.UID)
		size := c.Spec.Resources.Requests[corev1.ResourceStorage]
		made, err := s.controller.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: size.Value()},
			VolumeCapabilities: []*csi.VolumeCapability{sharedCapability}})
		if err != nil {
			return err
		}
		_, err = s.api.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{provisionedBy: sharedDriver}, Finalizers: []string{sidecarFinalizer}},
			Spec: corev1.PersistentVolumeSpec{Capacity: corev1.ResourceList{corev1.ResourceStorage: size}, AccessModes: c.Spec.AccessModes,
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, StorageClassName: *c.Spec.StorageClassName,
				ClaimRef:               &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion},
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: sharedDriver, VolumeHandle: made.Volume.VolumeId}}}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil // the claim will be bound to it
		}
		return err
	})
}

// volumes returns the PersistentVolumes of the driver.
func (s *sidecars) volumes(ctx context.Context) ([]corev1.PersistentVolume, error) {
	ctx, cancel := briefly(ctx)
	defer cancel()
	list, err := s.api.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(v corev1.PersistentVolume) bool { return v.Spec.CSI == nil || v.Spec.CSI.Driver != sharedDriver }), nil
}

// delete deletes volumes that are released.
func (s *sidecars) delete(ctx context.Context) error {
	volumes, err := s.volumes(ctx)
	if err != nil {
		return err
	}
	return each(volumes, func(v *corev1.PersistentVolume) error {
		if v.Status.Phase != corev1.VolumeReleased {
			return nil
		}
		ctx, cancel := briefly(ctx)
		defer cancel()
		if _, err := s.controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.Spec.CSI.VolumeHandle}); err != nil {
			return err // it is still attached
		}
		if err := s.api.CoreV1().PersistentVolumes().Delete(ctx, v.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(v.UID))}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		v, err := s.api.CoreV1().PersistentVolumes().Get(ctx, v.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		v.Finalizers = slices.DeleteFunc(v.Finalizers, func(f string) bool { return f == sidecarFinalizer })
		_, err = s.api.CoreV1().PersistentVolumes().Update(ctx, v, metav1.UpdateOptions{})
		return err
	})
}

// attach does what VolumeAttachments ask for.
func (s *sidecars) attach(ctx context.Context) error {
	listing, cancel := briefly(ctx)
	defer cancel()
	list, err := s.api.StorageV1().VolumeAttachments().List(listing, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return each(list.Items, func(a *storagev1.VolumeAttachment) error {
		ctx, cancel := briefly(ctx)
		defer cancel()
		switch {
		case a.Spec.Attacher != sharedDriver:
			return nil
		case a.DeletionTimestamp != nil:
			return s.detachOne(ctx, a)
		case !a.Status.Attached:
			return s.attachOne(ctx, a)
		}
		return nil
	})
}

func (s *sidecars) attachOne(ctx context.Context, a *storagev1.VolumeAttachment) error {
	v, err := s.api.CoreV1().PersistentVolumes().Get(ctx, *a.Spec.Source.PersistentVolumeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !slices.Contains(a.Finalizers, sidecarFinalizer) {
		a.Finalizers = append(a.Finalizers, sidecarFinalizer)
		if a, err = s.api.StorageV1().VolumeAttachments().Update(ctx, a, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	answer, err := s.controller.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: v.Spec.CSI.VolumeHandle, NodeId: a.Spec.NodeName, VolumeCapability: sharedCapability})
	if err != nil {
		return err
	}
	a.Status = storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: answer.PublishContext}
	_, err = s.api.StorageV1().VolumeAttachments().UpdateStatus(ctx, a, metav1.UpdateOptions{})
	return err
}

// detachOne detaches a volume, which its node must not use any more.
func (s *sidecars) detachOne(ctx context.Context, a *storagev1.VolumeAttachment) error {
	if !slices.Contains(a.Finalizers, sidecarFinalizer) {
		return nil
	}
	v, err := s.api.CoreV1().PersistentVolumes().Get(ctx, *a.Spec.Source.PersistentVolumeName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) { // the driver deletes no volume that is attached: without a PersistentVolume it was detached before
		return err
	}
	if err == nil {
		if at := mountedVolumes(s.nodes[a.Spec.NodeName].InitPID)[v.Spec.CSI.VolumeHandle]; at != "" {
			s.violation("%s is to be detached from %s, where it is mounted at %s", v.Name, a.Spec.NodeName, at)
		}
		if _, err := s.controller.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: v.Spec.CSI.VolumeHandle, NodeId: a.Spec.NodeName}); err != nil {
			return err
		}
	}
	a.Finalizers = slices.DeleteFunc(a.Finalizers, func(f string) bool { return f == sidecarFinalizer })
	_, err = s.api.StorageV1().VolumeAttachments().Update(ctx, a, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// expand expands volumes whose claims ask for more, and leaves the rest to the kubelet.
func (s *sidecars) expand(ctx context.Context) error {
	claims, err := s.claims(ctx)
	if err != nil {
		return err
	}
	return each(claims, func(c *corev1.PersistentVolumeClaim) error {
		const storage = corev1.ResourceStorage
		wanted, noted := c.Spec.Resources.Requests[storage], c.Status.Capacity[storage]
		if c.Status.Phase != corev1.ClaimBound || c.DeletionTimestamp != nil || noted.Cmp(wanted) >= 0 {
			return nil
		}
		ctx, cancel := briefly(ctx)
		defer cancel()
		v, err := s.api.CoreV1().PersistentVolumes().Get(ctx, c.Spec.VolumeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if has := v.Spec.Capacity[storage]; has.Cmp(wanted) < 0 {
			if _, err := s.controller.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: v.Spec.CSI.VolumeHandle,
				CapacityRange: &csi.CapacityRange{RequiredBytes: wanted.Value()}}); err != nil {
				return err
			}
			v.Spec.Capacity[storage] = wanted
			if _, err := s.api.CoreV1().PersistentVolumes().Update(ctx, v, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		if state := c.Status.AllocatedResourceStatuses[storage]; state == corev1.PersistentVolumeClaimNodeResizePending || state == corev1.PersistentVolumeClaimNodeResizeInProgress {
			return nil
		}
		c.Status.AllocatedResources = corev1.ResourceList{storage: *resource.NewQuantity(wanted.Value(), resource.BinarySI)}
		c.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{storage: corev1.PersistentVolumeClaimNodeResizePending}
		c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		_, err = s.api.CoreV1().PersistentVolumeClaims(c.Namespace).UpdateStatus(ctx, c, metav1.UpdateOptions{})
		return err
	})
}
