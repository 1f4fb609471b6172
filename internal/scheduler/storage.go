package scheduler

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/volume"

	"skiff/internal/scheduling"
)

// storage holds the volumes: what the informers have observed, and over it what pods that are being bound reserve.
type storage struct {
	claims     assumeCache[*corev1.PersistentVolumeClaim]
	volumes    assumeCache[*corev1.PersistentVolume]
	classes    storagelisters.StorageClassLister
	csiNodes   storagelisters.CSINodeLister
	csiDrivers storagelisters.CSIDriverLister
	capacities storagelisters.CSIStorageCapacityLister
	attached   cache.Indexer
	nodes      corelisters.NodeLister
	informers  []storageInformer
}

type storageInformer struct {
	kind scheduling.Kind
	cache.SharedIndexInformer
}

// Indexes of informers.
const (
	classIndex = "storageClass" // of volumes
	nodeIndex  = "node"         // of VolumeAttachments
)

// storagePlugins are the plugins that read volumes.
var storagePlugins = map[string]bool{scheduling.VolumeBinding: true, scheduling.VolumeZone: true, scheduling.VolumeRestrictions: true, scheduling.NodeVolumeLimits: true}

// newStorage returns the volumes of a factory of informers.
func newStorage(f informers.SharedInformerFactory) (*storage, error) {
	core, st := f.Core().V1(), f.Storage().V1()
	s := &storage{classes: st.StorageClasses().Lister(), csiNodes: st.CSINodes().Lister(), csiDrivers: st.CSIDrivers().Lister(),
		capacities: st.CSIStorageCapacities().Lister(), nodes: core.Nodes().Lister(),
		informers: []storageInformer{
			{scheduling.ClaimKind, core.PersistentVolumeClaims().Informer()}, {scheduling.VolumeKind, core.PersistentVolumes().Informer()},
			{scheduling.StorageClassKind, st.StorageClasses().Informer()}, {scheduling.CSINodeKind, st.CSINodes().Informer()},
			{scheduling.CSIDriverKind, st.CSIDrivers().Informer()}, {scheduling.CapacityKind, st.CSIStorageCapacities().Informer()},
			{scheduling.AttachmentKind, st.VolumeAttachments().Informer()},
		}}
	if err := core.PersistentVolumes().Informer().AddIndexers(cache.Indexers{classIndex: func(obj any) ([]string, error) {
		return []string{volume.GetPersistentVolumeClass(obj.(*corev1.PersistentVolume))}, nil
	}}); err != nil {
		return nil, fmt.Errorf("failed to index volumes by class: %w", err)
	}
	if err := st.VolumeAttachments().Informer().AddIndexers(cache.Indexers{nodeIndex: func(obj any) ([]string, error) {
		return []string{obj.(*storagev1.VolumeAttachment).Spec.NodeName}, nil
	}}); err != nil {
		return nil, fmt.Errorf("failed to index VolumeAttachments by node: %w", err)
	}
	s.claims.observed = core.PersistentVolumeClaims().Informer().GetIndexer()
	s.volumes.observed = core.PersistentVolumes().Informer().GetIndexer()
	s.attached = st.VolumeAttachments().Informer().GetIndexer()
	return s, nil
}

// Claim implements scheduling.Storage.
func (s *storage) Claim(namespace, name string) *corev1.PersistentVolumeClaim {
	return s.claims.get(namespace + "/" + name)
}

// Volume implements scheduling.Storage.
func (s *storage) Volume(name string) *corev1.PersistentVolume { return s.volumes.get(name) }

// VolumesOfClass implements scheduling.Storage.
func (s *storage) VolumesOfClass(class string) []*corev1.PersistentVolume {
	return s.volumes.byIndex(classIndex, class)
}

// Class implements scheduling.Storage.
func (s *storage) Class(name string) *storagev1.StorageClass { return found(s.classes.Get(name)) }

// CSINode implements scheduling.Storage.
func (s *storage) CSINode(node string) *storagev1.CSINode { return found(s.csiNodes.Get(node)) }

// CSIDriver implements scheduling.Storage.
func (s *storage) CSIDriver(name string) *storagev1.CSIDriver { return found(s.csiDrivers.Get(name)) }

// found returns an object of a lister, nil if there is none: that it does not exist is the only error of a lister.
func found[T any](obj *T, err error) *T {
	if err != nil {
		return nil
	}
	return obj
}

// Capacities implements scheduling.Storage.
func (s *storage) Capacities() []*storagev1.CSIStorageCapacity {
	list, _ := s.capacities.List(labels.Everything()) // fails never
	return list
}

// Attachments implements scheduling.Storage.
func (s *storage) Attachments(node string) []*storagev1.VolumeAttachment {
	list, _ := s.attached.ByIndex(nodeIndex, node) // fails only if there is no such index
	out := make([]*storagev1.VolumeAttachment, 0, len(list))
	for _, a := range list {
		out = append(out, a.(*storagev1.VolumeAttachment))
	}
	return out
}

// addStorageHandlers connects the informers of volumes with what is assumed of them, the pods that wait for them, and the queue.
func (s *Scheduler) addStorageHandlers() error {
	for _, informer := range s.storage.informers {
		kind := informer.kind
		changed := func(action scheduling.Action, old, obj any) {
			for _, o := range []any{old, obj} {
				s.volumeChanged(o)
			}
			s.queue.onEvent(scheduling.Event{Kind: kind, Action: action, Old: old, New: obj}, nil)
		}
		registered, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { changed(scheduling.Add, nil, obj) },
			UpdateFunc: func(old, obj any) { changed(scheduling.Update, old, obj) },
			DeleteFunc: func(obj any) { lastState(obj, func(old any) { changed(scheduling.Delete, old, nil) }) },
		})
		if err != nil {
			return err
		}
		s.synced = append(s.synced, registered.HasSyncedChecker())
	}
	return nil
}

// volumeChanged drops what was assumed of an object that was observed anew, and wakes the pods that wait for it.
func (s *Scheduler) volumeChanged(obj any) {
	switch o := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		s.storage.claims.expire(o.Namespace + "/" + o.Name)
		s.waiters.wake(claimWaiter(o.Namespace, o.Name))
	case *corev1.PersistentVolume:
		s.storage.volumes.expire(o.Name)
		if ref := o.Spec.ClaimRef; ref != nil {
			s.waiters.wake(claimWaiter(ref.Namespace, ref.Name))
		}
	}
}
