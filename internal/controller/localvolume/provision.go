package localvolume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	volumehelpers "k8s.io/component-helpers/storage/volume"

	"skiff/internal/controller"
	"skiff/internal/localvolume"
)

const (
	// fsTypeParameter is the parameter of a StorageClass that names the file system, for all CSI drivers.
	fsTypeParameter = "csi.storage.k8s.io/fstype"
	defaultFSType   = "ext4"
)

// provisionerOf returns the provisioner that the binder asks to make a volume for a claim.
func provisionerOf(claim *corev1.PersistentVolumeClaim) string {
	return cmp.Or(claim.Annotations[volumehelpers.AnnStorageProvisioner], claim.Annotations[volumehelpers.AnnBetaStorageProvisioner])
}

// nameOf returns the name of a claim's volume, which no other claim ever has.
func nameOf(claim *corev1.PersistentVolumeClaim) string { return "pvc-" + string(claim.UID) }

// provision has the node that the scheduler chose create a volume for a claim, and creates its PersistentVolume.
func (l *loop) provision(claim *corev1.PersistentVolumeClaim) controller.Decision {
	if l.disabled || provisionerOf(claim) != localvolume.Driver || claim.DeletionTimestamp != nil {
		return controller.Nothing
	}
	if _, err := l.volumes.Get(nameOf(claim)); err == nil {
		return controller.Nothing // the binder binds it
	}
	class, err := l.classes.Get(volumehelpers.GetPersistentVolumeClaimClass(claim))
	if err != nil || class.Provisioner != localvolume.Driver {
		return controller.Decision{Err: err}
	}
	nodeName := claim.Annotations[volumehelpers.AnnSelectedNode]
	if nodeName == "" {
		if class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer {
			return controller.Nothing // the scheduler chooses a node with the first pod
		}
		return provisioningFailed(claim, class.Name, errors.New("a local volume is created on the node of its first pod: the class must have volumeBindingMode WaitForFirstConsumer"))
	}
	if err := unsupported(claim); err != nil {
		return provisioningFailed(claim, class.Name, err)
	}
	node, err := l.nodes.Get(nodeName)
	if apierrors.IsNotFound(err) {
		return reschedule(claim, class.Name, fmt.Errorf("failed to get target node: %w", err))
	}
	if err != nil {
		return controller.Decision{Err: err}
	}
	request := createRequest(claim, class)
	size := resource.NewQuantity(request.CapacityRange.RequiredBytes, resource.BinarySI)
	var created *csi.Volume
	return controller.Decision{
		Actions: []controller.Action{
			controller.Event(claim, corev1.EventTypeNormal, "Provisioning", "External provisioner is provisioning volume for claim %q", controller.KeyOf(claim)),
			l.call(fmt.Sprintf("create volume %s of %s", request.Name, size), nodeName, func(ctx context.Context, volumes localvolume.Volumes) error {
				response, err := volumes.CreateVolume(ctx, request)
				created = response.GetVolume()
				return err
			}),
		},
		Then: func(err error) controller.Decision {
			switch status.Code(err) {
			case codes.OK:
				return controller.Decision{Actions: []controller.Action{
					controller.Create(persistentVolume(claim, class, node, created)),
					controller.Event(claim, corev1.EventTypeNormal, "ProvisioningSucceeded", "Successfully provisioned volume %s", request.Name),
				}}
			case codes.ResourceExhausted: // the node certainly has no volume; another may have more space
				return reschedule(claim, class.Name, err)
			}
			d := provisioningFailed(claim, class.Name, err)
			d.Err = err
			return d
		},
	}
}

// unsupported returns why there can be no local volume for a claim.
func unsupported(claim *corev1.PersistentVolumeClaim) error {
	switch {
	case claim.Spec.Selector != nil:
		return errors.New("claim Selector is not supported")
	case claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil:
		return errors.New("local volumes cannot be made from a snapshot, another claim or another data source")
	case claim.Spec.VolumeAttributesClassName != nil && *claim.Spec.VolumeAttributesClassName != "":
		return errors.New("local volumes have no VolumeAttributesClasses")
	}
	return nil
}

// provisioningFailed records why a claim has no volume. Nothing is tried again until the claim changes.
func provisioningFailed(claim *corev1.PersistentVolumeClaim, class string, err error) controller.Decision {
	return controller.Decision{Actions: []controller.Action{controller.Event(claim, corev1.EventTypeWarning, "ProvisioningFailed", "failed to provision volume with StorageClass %q: %v", class, err)}}
}

// reschedule has the scheduler choose another node.
func reschedule(claim *corev1.PersistentVolumeClaim, class string, err error) controller.Decision {
	d := provisioningFailed(claim, class, err)
	claim = claim.DeepCopy()
	delete(claim.Annotations, volumehelpers.AnnSelectedNode)
	d.Actions = append(d.Actions, controller.Update(claim))
	return d
}

// createRequest returns the call that creates the volume of a claim.
func createRequest(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) *csi.CreateVolumeRequest {
	size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	rq := &csi.CreateVolumeRequest{Name: nameOf(claim), CapacityRange: &csi.CapacityRange{RequiredBytes: size.Value()}, Parameters: maps.Clone(class.Parameters)}
	if limit, ok := claim.Spec.Resources.Limits[corev1.ResourceStorage]; ok {
		rq.CapacityRange.LimitBytes = limit.Value()
	}
	for _, mode := range claim.Spec.AccessModes {
		c := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: accessModes[mode]}}
		if isBlock(claim.Spec.VolumeMode) {
			c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		} else {
			c.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: cmp.Or(class.Parameters[fsTypeParameter], defaultFSType), MountFlags: class.MountOptions}}
		}
		rq.VolumeCapabilities = append(rq.VolumeCapabilities, c)
	}
	return rq
}

// accessModes holds CSI's access modes for a driver that distinguishes pods of a node.
var accessModes = map[corev1.PersistentVolumeAccessMode]csi.VolumeCapability_AccessMode_Mode{
	corev1.ReadWriteOnce:    csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
	corev1.ReadWriteOncePod: csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
	corev1.ReadOnlyMany:     csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
	corev1.ReadWriteMany:    csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
}

func isBlock(mode *corev1.PersistentVolumeMode) bool {
	return mode != nil && *mode == corev1.PersistentVolumeBlock
}

// persistentVolume returns the PersistentVolume of a volume that a node has created.
func persistentVolume(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, node *corev1.Node, created *csi.Volume) *corev1.PersistentVolume {
	capacity := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if n := created.GetCapacityBytes(); n > capacity.Value() {
		capacity = *resource.NewQuantity(n, resource.BinarySI)
	}
	attributes := map[string]string{localvolume.NodeAttribute: node.Name}
	maps.Copy(attributes, created.GetVolumeContext())
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: nameOf(claim), Annotations: map[string]string{volumehelpers.AnnDynamicallyProvisioned: localvolume.Driver}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: capacity},
			AccessModes:                   claim.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			StorageClassName:              class.Name,
			MountOptions:                  class.MountOptions,
			VolumeMode:                    claim.Spec.VolumeMode,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: localvolume.Driver, VolumeHandle: nameOf(claim), VolumeAttributes: attributes}},
			ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
				ResourceVersion: claim.ResourceVersion},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: onlyNode(node)},
		},
	}
	if class.ReclaimPolicy != nil {
		pv.Spec.PersistentVolumeReclaimPolicy = *class.ReclaimPolicy
	}
	if pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
		pv.Finalizers = []string{volumehelpers.PVDeletionProtectionFinalizer}
	}
	if !isBlock(claim.Spec.VolumeMode) {
		pv.Spec.CSI.FSType = cmp.Or(class.Parameters[fsTypeParameter], defaultFSType)
	}
	return pv
}

// onlyNode returns a selector of a node, by the label that has its name on every node that does not hide it.
func onlyNode(node *corev1.Node) *corev1.NodeSelector {
	hostname := cmp.Or(node.Labels[corev1.LabelHostname], node.Name)
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{hostname}},
	}}}}
}
