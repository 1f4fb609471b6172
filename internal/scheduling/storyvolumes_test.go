package scheduling_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/yaml"

	"skiff/internal/scheduling"
)

// storyStorage holds the volumes of a story:
//
//	claim NAME in=NAMESPACE class=C size=1Gi volume=V bound lost deleted selected=NODE modes=ReadWriteOncePod owner=POD
//	volume NAME class=C size=1Gi node=NODE zone=Z claim=CLAIM phase=Bound csi=DRIVER        (indented: more of the spec)
//	class NAME provisioner=P immediate zones=a,b
//	csinode NODE driver=D limit=3      csidriver NAME capacity required
//	capacity NAME class=C size=1Gi zone=Z      attachment NAME node=NODE volume=V attacher=D
type storyStorage struct {
	claims      []*corev1.PersistentVolumeClaim
	volumes     []*corev1.PersistentVolume
	classes     []*storagev1.StorageClass
	csiNodes    []*storagev1.CSINode
	csiDrivers  []*storagev1.CSIDriver
	capacities  []*storagev1.CSIStorageCapacity
	attachments []*storagev1.VolumeAttachment
}

func named[T metav1.Object](list []T, namespace, name string) (found T) {
	for _, o := range list {
		if o.GetNamespace() == namespace && o.GetName() == name {
			found = o
		}
	}
	return found
}

func (s *storyStorage) Claim(namespace, name string) *corev1.PersistentVolumeClaim {
	return named(s.claims, namespace, name)
}
func (s *storyStorage) Volume(name string) *corev1.PersistentVolume {
	return named(s.volumes, "", name)
}
func (s *storyStorage) Class(name string) *storagev1.StorageClass { return named(s.classes, "", name) }
func (s *storyStorage) CSINode(name string) *storagev1.CSINode    { return named(s.csiNodes, "", name) }
func (s *storyStorage) CSIDriver(name string) *storagev1.CSIDriver {
	return named(s.csiDrivers, "", name)
}
func (s *storyStorage) Capacities() []*storagev1.CSIStorageCapacity { return s.capacities }
func (s *storyStorage) VolumesOfClass(class string) (out []*corev1.PersistentVolume) {
	for _, v := range s.volumes {
		if v.Spec.StorageClassName == class {
			out = append(out, v)
		}
	}
	return out
}
func (s *storyStorage) Attachments(node string) (out []*storagev1.VolumeAttachment) {
	for _, a := range s.attachments {
		if a.Spec.NodeName == node {
			out = append(out, a)
		}
	}
	return out
}

// tell adds the object of a line. It returns nil if the line is about something else.
func (s *storyStorage) tell(words []string, more string) any {
	o := options(words[2:])
	has := func(flag string) bool { _, ok := o[flag]; return ok }
	meta := metav1.ObjectMeta{Name: words[1]}
	switch words[0] {
	case "claim":
		c := &corev1.PersistentVolumeClaim{ObjectMeta: meta}
		c.Namespace, c.UID, c.Annotations = "default", "uid-claim", map[string]string{}
		if ns, ok := o["in"]; ok {
			c.Namespace = ns
		}
		if class, ok := o["class"]; ok {
			c.Spec.StorageClassName = &class
		}
		if size, ok := o["size"]; ok {
			c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
		}
		if modes, ok := o["modes"]; ok {
			c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.PersistentVolumeAccessMode(modes)}
		}
		c.Spec.VolumeName = o["volume"]
		if has("bound") {
			c.Annotations[volume.AnnBindCompleted] = "yes"
		}
		if has("lost") {
			c.Status.Phase = corev1.ClaimLost
		}
		if has("deleted") {
			c.DeletionTimestamp = &metav1.Time{}
		}
		if node, ok := o["selected"]; ok {
			c.Annotations[volume.AnnSelectedNode] = node
		}
		if owner, ok := o["owner"]; ok {
			c.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: owner, UID: types.UID(owner), Controller: ptrTo(true)}}
		}
		s.claims = append(s.claims, c)
		return c
	case "volume":
		v := &corev1.PersistentVolume{ObjectMeta: meta}
		v.Status.Phase, v.Spec.StorageClassName, v.Labels = corev1.VolumeAvailable, o["class"], set(o["labels"])
		if zone, ok := o["zone"]; ok {
			v.Labels[corev1.LabelTopologyZone] = zone
		}
		if size, ok := o["size"]; ok {
			v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
		}
		if node, ok := o["node"]; ok {
			v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}}
		}
		if claim, ok := o["claim"]; ok {
			v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: claim}
		}
		if phase, ok := o["phase"]; ok {
			v.Status.Phase = corev1.PersistentVolumePhase(phase)
		}
		if driver, ok := o["csi"]; ok {
			v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: v.Name}
		}
		if err := yaml.UnmarshalStrict([]byte(more), &v.Spec); err != nil {
			return err
		}
		s.volumes = append(s.volumes, v)
		return v
	case "class":
		c := &storagev1.StorageClass{ObjectMeta: meta, Provisioner: o["provisioner"], VolumeBindingMode: ptrTo(storagev1.VolumeBindingWaitForFirstConsumer)}
		if has("immediate") {
			c.VolumeBindingMode = ptrTo(storagev1.VolumeBindingImmediate)
		}
		if zones, ok := o["zones"]; ok {
			c.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{
				Key: corev1.LabelTopologyZone, Values: strings.Split(zones, ",")}}}}
		}
		s.classes = append(s.classes, c)
		return c
	case "csinode":
		n := &storagev1.CSINode{ObjectMeta: meta}
		if driver, ok := o["driver"]; ok {
			n.Spec.Drivers = []storagev1.CSINodeDriver{{Name: driver}}
			if limit, ok := o["limit"]; ok {
				n.Spec.Drivers[0].Allocatable = &storagev1.VolumeNodeResources{Count: ptrTo(int32(ptrTo(resource.MustParse(limit)).Value()))}
			}
		}
		s.csiNodes = append(s.csiNodes, n)
		return n
	case "csidriver":
		d := &storagev1.CSIDriver{ObjectMeta: meta, Spec: storagev1.CSIDriverSpec{StorageCapacity: ptrTo(has("capacity")), PreventPodSchedulingIfMissing: ptrTo(has("required"))}}
		s.csiDrivers = append(s.csiDrivers, d)
		return d
	case "capacity":
		c := &storagev1.CSIStorageCapacity{ObjectMeta: meta, StorageClassName: o["class"], Capacity: ptrTo(resource.MustParse(o["size"])),
			NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelTopologyZone: o["zone"]}}}
		if largest, ok := o["largest"]; ok {
			c.MaximumVolumeSize = ptrTo(resource.MustParse(largest))
		}
		s.capacities = append(s.capacities, c)
		return c
	case "attachment":
		a := &storagev1.VolumeAttachment{ObjectMeta: meta, Spec: storagev1.VolumeAttachmentSpec{NodeName: o["node"], Attacher: o["attacher"],
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptrTo(o["volume"])}}}
		s.attachments = append(s.attachments, a)
		return a
	}
	return nil
}

var storageKinds = map[string]scheduling.Kind{"claim": scheduling.ClaimKind, "volume": scheduling.VolumeKind, "class": scheduling.StorageClassKind,
	"csinode": scheduling.CSINodeKind, "csidriver": scheduling.CSIDriverKind, "capacity": scheduling.CapacityKind, "attachment": scheduling.AttachmentKind}

// find returns the first object that a line like this one added.
func (s *storyStorage) find(words []string) any {
	switch words[0] {
	case "claim":
		return s.Claim("default", words[1])
	case "volume":
		return s.Volume(words[1])
	case "class":
		return s.Class(words[1])
	case "csinode":
		return s.CSINode(words[1])
	case "csidriver":
		return s.CSIDriver(words[1])
	case "capacity":
		return named(s.capacities, "", words[1])
	}
	return named(s.attachments, "", words[1])
}

// later is something that happens to an object of storage.
func (s *storyStorage) later(words []string, more string) scheduling.Event {
	e := scheduling.Event{Kind: storageKinds[words[1]]}
	switch words[0] {
	case "add":
		e.Action, e.New = scheduling.Add, (&storyStorage{}).tell(words[1:], more)
	case "change":
		e.Action, e.Old, e.New = scheduling.Update, s.find(words[1:]), (&storyStorage{}).tell(words[1:], more)
	case "delete":
		e.Action, e.Old = scheduling.Delete, s.find(words[1:])
	}
	return e
}

// reserve prints what is reserved for a pod on a node.
func (s *story) reserve(name, node string) string {
	snapshot, pod := s.snapshot(), s.find(name)
	var b strings.Builder
	for _, plugin := range s.profileOf().Filters {
		reserver, ok := plugin.PreFilter(pod, snapshot).Check.(scheduling.Reserver)
		if !ok {
			continue
		}
		r, err := reserver.Reserve(snapshot.Node(node))
		switch r := r.(type) {
		case nil:
			fmt.Fprintf(&b, "%s: nothing%s\n", plugin.Name(), errText(err))
		case *scheduling.VolumeReservation:
			for _, e := range r.Existing {
				fmt.Fprintf(&b, "volume %s for claim %s (changed: %v, refers to %s/%s %s, annotations %v)\n", e.Volume.Name, e.Claim.Name, e.Changed,
					e.Volume.Spec.ClaimRef.Namespace, e.Volume.Spec.ClaimRef.Name, e.Volume.Spec.ClaimRef.UID, slices.Sorted(maps.Keys(e.Volume.Annotations)))
			}
			for _, claim := range r.Provisioned {
				fmt.Fprintf(&b, "volume to provision for claim %s on %s\n", claim.Name, claim.Annotations[volume.AnnSelectedNode])
			}
			fmt.Fprintf(&b, "to be bound in %v\n", r.Timeout)
		case *scheduling.DeviceReservation:
			describeDevices(&b, r)
		}
	}
	return b.String()
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return ", " + err.Error()
}
