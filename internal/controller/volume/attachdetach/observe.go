package attachdetach

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/controller/volume"
)

// observed is the state that a decision about a node is made from.
type observed struct {
	name     string
	node     *corev1.Node        // nil if it has been deleted
	wanted   map[string]*wanted  // by name of the VolumeAttachment
	attached map[string]attached // the loop's VolumeAttachments to the node, by name
}

// wanted is a volume that pods on a node use.
type wanted struct {
	volume *corev1.PersistentVolume
	pods   []*corev1.Pod
}

// attached is a VolumeAttachment, and the name of its volume in the node's status.
type attached struct {
	*storagev1.VolumeAttachment
	volume corev1.UniqueVolumeName
}

func (l *loop) observe(name string) observed {
	seen := observed{name: name, wanted: map[string]*wanted{}, attached: map[string]attached{}}
	if n, err := l.nodes.Get(name); err == nil {
		seen.node = n
		if isManaged(n) {
			l.want(&seen)
		}
	}
	for _, a := range l.attached(attachmentsByNode, name) {
		if volume := l.volumeNameOf(a, seen.node); volume != "" {
			seen.attached[a.Name] = attached{a, volume}
		}
	}
	return seen
}

// want adds the volumes that pods on the node use.
func (l *loop) want(seen *observed) {
	for _, pod := range l.podsOn(seen.name) {
		if volume.HasEnded(pod) {
			continue
		}
		for i := range pod.Spec.Volumes {
			v := l.attachable(pod, &pod.Spec.Volumes[i])
			if v == nil {
				continue
			}
			name := attachmentName(volumeName(v.Spec.CSI), seen.name)
			if seen.wanted[name] == nil {
				seen.wanted[name] = &wanted{volume: v}
			}
			seen.wanted[name].pods = append(seen.wanted[name].pods, pod)
		}
	}
	for _, w := range seen.wanted {
		slices.SortFunc(w.pods, byName)
	}
}

// attachable returns the volume behind a pod's volume if its driver has to attach it, or nil.
func (l *loop) attachable(pod *corev1.Pod, v *corev1.Volume) *corev1.PersistentVolume {
	name := volume.ClaimName(pod, v)
	if name == "" {
		return nil
	}
	claim, err := l.claims.PersistentVolumeClaims(pod.Namespace).Get(name)
	if err != nil || claim.Status.Phase != corev1.ClaimBound || v.Ephemeral != nil && !metav1.IsControlledBy(claim, pod) {
		return nil
	}
	bound, err := l.volumes.Get(claim.Spec.VolumeName)
	if err != nil || bound.Spec.CSI == nil || bound.Spec.ClaimRef == nil || bound.Spec.ClaimRef.UID != claim.UID {
		return nil
	}
	if driver, err := l.drivers.Get(bound.Spec.CSI.Driver); err == nil && !needsAttach(driver) {
		return nil
	}
	return bound
}

// volumeNameOf returns the name that a VolumeAttachment's volume has in the node's status, or "" if the loop did not create the VolumeAttachment: its name
// is made of the volume's. If the volume is gone, the node may know it still.
func (l *loop) volumeNameOf(a *storagev1.VolumeAttachment, n *corev1.Node) corev1.UniqueVolumeName {
	if a.Spec.Source.PersistentVolumeName == nil {
		return ""
	}
	if v, err := l.volumes.Get(*a.Spec.Source.PersistentVolumeName); err == nil && v.Spec.CSI != nil {
		if name := volumeName(v.Spec.CSI); attachmentName(name, a.Spec.NodeName) == a.Name {
			return name
		}
	}
	if n == nil {
		return ""
	}
	for _, known := range n.Status.VolumesAttached {
		if attachmentName(known.Name, n.Name) == a.Name {
			return known.Name
		}
	}
	for _, known := range n.Status.VolumesInUse {
		if attachmentName(known, n.Name) == a.Name {
			return known
		}
	}
	return ""
}

// isShared reports whether a volume may be attached to several nodes. One without access modes may: its driver decides.
func isShared(v *corev1.PersistentVolume) bool {
	return len(v.Spec.AccessModes) == 0 || slices.Contains(v.Spec.AccessModes, corev1.ReadWriteMany) || slices.Contains(v.Spec.AccessModes, corev1.ReadOnlyMany)
}
