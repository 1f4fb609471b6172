package localvolume

import (
	"context"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"

	"skiff/internal/client"
	"skiff/internal/controller"
	"skiff/internal/localvolume"
)

const (
	loopName = "local-volume-provisioner-controller"
	// volumePrefix tells the keys of PersistentVolumes from those of claims, which have a namespace.
	volumePrefix = "volumes/"
	// callTimeout bounds a call to a node; making a file system on a slow disk takes seconds.
	callTimeout = 2 * time.Minute
	// workers is how many nodes are called at the same time.
	workers = 20
)

// classKey is the key of what is created at the start.
var classKey = controller.Key{Name: "class"}

type loop struct {
	claims   corelisters.PersistentVolumeClaimLister
	volumes  corelisters.PersistentVolumeLister
	nodes    corelisters.NodeLister
	classes  storagelisters.StorageClassLister
	drivers  storagelisters.CSIDriverLister
	disabled bool
	// volumesOf returns what creates, expands and deletes the volumes of a node.
	volumesOf func(c *client.Client, node string) localvolume.Volumes
}

// New returns the loop.
func New(deps controller.Deps) controller.Loop {
	return newLoop(deps).declaration(deps)
}

func newLoop(deps controller.Deps) *loop {
	core, storage := deps.Informers.Core().V1(), deps.Informers.Storage().V1()
	return &loop{claims: core.PersistentVolumeClaims().Lister(), volumes: core.PersistentVolumes().Lister(), nodes: core.Nodes().Lister(), classes: storage.StorageClasses().Lister(),
		drivers: storage.CSIDrivers().Lister(), disabled: deps.Config.DisableLocalStorage,
		volumesOf: func(c *client.Client, node string) localvolume.Volumes {
			return localvolume.Client{API: c.Kubernetes().CoreV1().RESTClient(), Node: node}
		}}
}

func (l *loop) declaration(deps controller.Deps) controller.Loop {
	core, storage := deps.Informers.Core().V1(), deps.Informers.Storage().V1()
	noKeys := func(_, _ metav1.Object) []controller.Key { return nil } // its cache is read
	return controller.Loop{Name: loopName, EventSource: localvolume.Driver, QueueName: "local_volume_provisioner", Workers: workers, Reconcile: l.reconcile,
		Watch: []controller.Watch{
			{Informer: core.PersistentVolumeClaims().Informer(), Type: &corev1.PersistentVolumeClaim{}, Keys: claimKeys},
			{Informer: core.PersistentVolumes().Informer(), Type: &corev1.PersistentVolume{}, Keys: volumeKeys},
			// The namespace always exists: it makes the loop create the class.
			{Informer: core.Namespaces().Informer(), Keys: func(before, after metav1.Object) []controller.Key {
				if before == nil && after.GetName() == metav1.NamespaceSystem {
					return []controller.Key{classKey}
				}
				return nil
			}},
			{Informer: storage.StorageClasses().Informer(), Type: &storagev1.StorageClass{}, Keys: noKeys},
			{Informer: storage.CSIDrivers().Informer(), Type: &storagev1.CSIDriver{}, Keys: noKeys},
			{Informer: core.Nodes().Informer(), Keys: noKeys},
		}}
}

// claimKeys returns the key of a claim that may wait for a local volume, or have one.
func claimKeys(_, after metav1.Object) []controller.Key {
	claim, ok := after.(*corev1.PersistentVolumeClaim)
	if !ok || claim.Spec.VolumeName == "" && provisionerOf(claim) != localvolume.Driver {
		return nil
	}
	return []controller.Key{controller.KeyOf(claim)}
}

// volumeKeys returns the keys of a local volume and of its claim.
func volumeKeys(_, after metav1.Object) []controller.Key {
	pv, ok := after.(*corev1.PersistentVolume)
	if !ok || !isLocal(pv) {
		return nil
	}
	keys := []controller.Key{{Name: volumePrefix + pv.Name}}
	if ref := pv.Spec.ClaimRef; ref != nil {
		keys = append(keys, controller.Key{Namespace: ref.Namespace, Name: ref.Name})
	}
	return keys
}

// isLocal reports whether a PersistentVolume is one of the driver's.
func isLocal(pv *corev1.PersistentVolume) bool {
	return pv.Spec.CSI != nil && pv.Spec.CSI.Driver == localvolume.Driver
}

func (l *loop) reconcile(key controller.Key, now time.Time) controller.Decision {
	if key == classKey {
		return l.reconcileClass()
	}
	if name, ok := strings.CutPrefix(key.Name, volumePrefix); ok && key.Namespace == "" {
		pv, err := l.volumes.Get(name)
		if err != nil {
			return controller.Nothing // it is gone
		}
		return l.release(pv)
	}
	claim, err := l.claims.PersistentVolumeClaims(key.Namespace).Get(key.Name)
	if err != nil {
		return controller.Nothing // it is gone; its volume has a key of its own
	}
	if claim.Spec.VolumeName == "" {
		return l.provision(claim)
	}
	pv, err := l.volumes.Get(claim.Spec.VolumeName)
	if err != nil || !isLocal(pv) || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != claim.UID || claim.Status.Phase != corev1.ClaimBound {
		return controller.Nothing // it is another driver's, or not bound yet
	}
	return l.expand(claim, pv, now)
}

// call returns an action that calls the driver on a node.
func (l *loop) call(what, node string, do func(context.Context, localvolume.Volumes) error) controller.Action {
	return controller.Call(what+" on node "+node, func(ctx context.Context, c *client.Client) error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		if n, err := l.nodes.Get(node); err == nil && n.Annotations[localvolume.ImaginaryAnnotation] != "" {
			return do(ctx, imaginaryVolumes{})
		}
		return do(ctx, l.volumesOf(c, node))
	})
}

// imaginaryVolumes are the volumes of a hollow node: there are as many as anybody wants.
type imaginaryVolumes struct{}

func (imaginaryVolumes) CreateVolume(_ context.Context, rq *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: rq.Name, CapacityBytes: rq.GetCapacityRange().GetRequiredBytes()}}, nil
}

func (imaginaryVolumes) ControllerExpandVolume(_ context.Context, rq *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: rq.GetCapacityRange().GetRequiredBytes()}, nil
}

func (imaginaryVolumes) DeleteVolume(context.Context, *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	return &csi.DeleteVolumeResponse{}, nil
}
