package attachdetach

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/controller"
	"skiff/internal/controller/node"
	"skiff/internal/controller/volume"
)

const (
	attachmentsByNode   = "attachdetach/node"
	attachmentsByVolume = "attachdetach/volume"
	workers             = 10
)

// loop reads the caches.
type loop struct {
	nodes       corelisters.NodeLister
	claims      corelisters.PersistentVolumeClaimLister
	volumes     corelisters.PersistentVolumeLister
	drivers     storagelisters.CSIDriverLister
	attachments cache.Indexer // of VolumeAttachments, with attachmentsByNode and attachmentsByVolume
	podsOn      func(node string) []*corev1.Pod
	podsOf      func(claim controller.Key) []*corev1.Pod
	memory      memory
	// forceOnTimeout is unset if only the taint out-of-service lets volumes be detached that are in use.
	forceOnTimeout bool
}

// New returns the loop. Its keys are nodes.
func New(deps controller.Deps) controller.Loop {
	core, storage := deps.Informers.Core().V1(), deps.Informers.Storage().V1()
	pods, attachments := core.Pods().Informer(), storage.VolumeAttachments().Informer()
	if err := attachments.AddIndexers(cache.Indexers{attachmentsByNode: nodeOf, attachmentsByVolume: volumeOf}); err != nil {
		panic("indexing VolumeAttachments: " + err.Error()) // only if the informer has stopped
	}
	l := &loop{nodes: core.Nodes().Lister(), claims: core.PersistentVolumeClaims().Lister(), volumes: core.PersistentVolumes().Lister(), drivers: storage.CSIDrivers().Lister(),
		attachments: attachments.GetIndexer(), podsOn: node.PodsOn(pods), podsOf: volume.PodsOf(pods), forceOnTimeout: !deps.Config.DisableForceDetachOnTimeout}
	return controller.Loop{
		Name: "persistentvolume-attach-detach-controller", ServiceAccount: "attachdetach-controller", EventSource: "attachdetach-controller", QueueName: "attach_detach", Workers: workers,
		Watch: []controller.Watch{
			{Informer: pods, Type: &corev1.Pod{}, Keys: podKeys},
			{Informer: core.PersistentVolumeClaims().Informer(), Type: &corev1.PersistentVolumeClaim{}, Keys: l.claimKeys},
			{Informer: core.PersistentVolumes().Informer(), Type: &corev1.PersistentVolume{}, Keys: l.volumeKeys},
			{Informer: core.Nodes().Informer(), Type: &corev1.Node{}, Keys: nodeKeys},
			{Informer: storage.CSIDrivers().Informer(), Type: &storagev1.CSIDriver{}, Keys: l.driverKeys},
			{Informer: attachments, Type: &storagev1.VolumeAttachment{}, Keys: l.attachmentKeys},
		},
		Reconcile: func(key controller.Key, now time.Time) controller.Decision { return l.decide(l.observe(key.Name), now) },
	}
}

func nodeOf(obj any) ([]string, error) {
	if a, ok := obj.(*storagev1.VolumeAttachment); ok {
		return []string{a.Spec.NodeName}, nil
	}
	return nil, nil
}

func volumeOf(obj any) ([]string, error) {
	if a, ok := obj.(*storagev1.VolumeAttachment); ok && a.Spec.Source.PersistentVolumeName != nil {
		return []string{*a.Spec.Source.PersistentVolumeName}, nil
	}
	return nil, nil
}

// attached returns the VolumeAttachments under a value of an index.
func (l *loop) attached(index, value string) []*storagev1.VolumeAttachment {
	found, _ := l.attachments.ByIndex(index, value) // the index exists
	all := make([]*storagev1.VolumeAttachment, len(found))
	for i, obj := range found {
		all[i] = obj.(*storagev1.VolumeAttachment)
	}
	return all
}

// nodesOf returns the nodes of pods.
func nodesOf(pods []*corev1.Pod) (keys []controller.Key) {
	for _, pod := range pods {
		if pod.Spec.NodeName != "" {
			keys = append(keys, controller.Key{Name: pod.Spec.NodeName})
		}
	}
	return keys
}

// podKeys returns the node of a pod that has claims.
func podKeys(before, after metav1.Object) []controller.Key {
	pod, ok := after.(*corev1.Pod)
	if !ok {
		pod = before.(*corev1.Pod)
	}
	if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return volume.ClaimName(pod, &v) != "" }) {
		return nil
	}
	return nodesOf([]*corev1.Pod{pod})
}

// claimKeys returns the nodes of the pods with a claim that has been bound.
func (l *loop) claimKeys(before, after metav1.Object) []controller.Key {
	old, _ := before.(*corev1.PersistentVolumeClaim)
	claim, ok := after.(*corev1.PersistentVolumeClaim)
	if !ok || old != nil && old.Status.Phase == claim.Status.Phase && old.Spec.VolumeName == claim.Spec.VolumeName {
		return nil
	}
	return nodesOf(l.podsOf(controller.KeyOf(claim)))
}

// volumeKeys returns the nodes of the pods with the claim of a volume.
func (l *loop) volumeKeys(_, after metav1.Object) []controller.Key {
	v, ok := after.(*corev1.PersistentVolume)
	if !ok || v.Spec.CSI == nil || v.Spec.ClaimRef == nil {
		return nil
	}
	return l.users(v)
}

func (l *loop) users(v *corev1.PersistentVolume) []controller.Key {
	return nodesOf(l.podsOf(controller.Key{Namespace: v.Spec.ClaimRef.Namespace, Name: v.Spec.ClaimRef.Name}))
}

// nodeKeys returns a node if what decides about its volumes has changed.
func nodeKeys(before, after metav1.Object) []controller.Key {
	old, _ := before.(*corev1.Node)
	n, ok := after.(*corev1.Node)
	if !ok {
		return []controller.Key{controller.KeyOf(old)}
	}
	if old != nil && slices.Equal(old.Status.VolumesInUse, n.Status.VolumesInUse) && slices.Equal(old.Status.VolumesAttached, n.Status.VolumesAttached) &&
		isReady(old) == isReady(n) && isOutOfService(old) == isOutOfService(n) && isManaged(old) == isManaged(n) {
		return nil
	}
	return []controller.Key{controller.KeyOf(n)}
}

// driverKeys returns all nodes: whether a driver's volumes are attached at all may have changed.
func (l *loop) driverKeys(before, after metav1.Object) (keys []controller.Key) {
	old, _ := before.(*storagev1.CSIDriver)
	driver, _ := after.(*storagev1.CSIDriver)
	if old != nil && driver != nil && needsAttach(old) == needsAttach(driver) {
		return nil
	}
	nodes, _ := l.nodes.List(labels.Everything()) // a cache does not fail
	for _, n := range nodes {
		keys = append(keys, controller.KeyOf(n))
	}
	return keys
}

// attachmentKeys returns the node of a VolumeAttachment, and if it is gone the nodes that may get its volume now.
func (l *loop) attachmentKeys(before, after metav1.Object) []controller.Key {
	a, ok := after.(*storagev1.VolumeAttachment)
	if ok {
		return []controller.Key{{Name: a.Spec.NodeName}}
	}
	a = before.(*storagev1.VolumeAttachment)
	keys := []controller.Key{{Name: a.Spec.NodeName}}
	if name := a.Spec.Source.PersistentVolumeName; name != nil {
		if v, err := l.volumes.Get(*name); err == nil && v.Spec.ClaimRef != nil {
			keys = append(keys, l.users(v)...)
		}
	}
	return keys
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func isOutOfService(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// isManaged reports whether a node leaves attaching to the loop.
func isManaged(n *corev1.Node) bool {
	_, ok := n.Annotations["volumes.kubernetes.io/controller-managed-attach-detach"]
	return ok
}

func needsAttach(driver *storagev1.CSIDriver) bool {
	return driver.Spec.AttachRequired == nil || *driver.Spec.AttachRequired
}
