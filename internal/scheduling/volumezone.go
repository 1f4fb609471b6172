package scheduling

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-helpers/storage/volume"
)

// volumeZone allows nodes in the zones and regions that the pod's volumes have as labels. Nodes without such labels are in all zones.
type volumeZone struct{ refused *Status }

func newVolumeZone() *volumeZone {
	return &volumeZone{refuse(VolumeZone, UnschedulableAndUnresolvable, "node(s) had no available volume zone")}
}

func (*volumeZone) Name() string { return VolumeZone }

func (*volumeZone) EventsToRegister() []EventWithHint {
	return []EventWithHint{
		{StorageClassKind, Add, func(_ *Pod, e Event) bool {
			_, class := updated[*storagev1.StorageClass](e)
			return class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
		}},
		{NodeKind, Add | UpdateNodeLabel, nil},
		{ClaimKind, Add | Update, claimOfPod(false)},
		{VolumeKind, Add | Update, func(_ *Pod, e Event) bool {
			old, new := updated[*corev1.PersistentVolume](e)
			return old == nil || !slices.EqualFunc(zonesOf(old), zonesOf(new), func(a, b volumeTopology) bool {
				return a.key == b.key && sameSet(a.values, b.values)
			})
		}},
	}
}

func sameSet(a, b []string) bool {
	in := func(list []string) func(string) bool { return func(s string) bool { return !slices.Contains(list, s) } }
	return !slices.ContainsFunc(a, in(b)) && !slices.ContainsFunc(b, in(a))
}

// volumeTopology is a label of a volume that nodes must have with one of the values.
type volumeTopology struct {
	key    string
	values []string
}

var volumeZoneLabels = []string{corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion, corev1.LabelTopologyZone, corev1.LabelTopologyRegion}

// zonesOf returns the zones and regions of a volume. A label may hold several, as in "a__b"; one that holds an empty one counts for nothing.
func zonesOf(v *corev1.PersistentVolume) []volumeTopology {
	var out []volumeTopology
	for _, key := range volumeZoneLabels {
		label, ok := v.Labels[key]
		if !ok {
			continue
		}
		values := strings.Split(label, "__")
		for i := range values {
			values[i] = strings.TrimSpace(values[i])
		}
		if !slices.Contains(values, "") {
			out = append(out, volumeTopology{key, values})
		}
	}
	return out
}

func (p *volumeZone) PreFilter(pod *Pod, s *Snapshot) PreFilterResult {
	var topologies []volumeTopology
	for _, c := range pod.claims {
		if c.ephemeral {
			continue
		}
		v, why := p.volumeOf(pod, c, s.storage)
		if why != "" {
			return PreFilterResult{Status: refuse(VolumeZone, UnschedulableAndUnresolvable, why)}
		}
		if v != nil {
			topologies = append(topologies, zonesOf(v)...)
		}
	}
	if len(topologies) == 0 {
		return PreFilterResult{}
	}
	return PreFilterResult{Uncached: true, Check: checkFunc(func(n *Node) *Status {
		if slices.ContainsFunc(volumeZoneLabels, func(key string) bool { _, ok := n.Labels[key]; return ok }) &&
			slices.ContainsFunc(topologies, func(t volumeTopology) bool { return !t.has(n.Node) }) {
			return p.refused
		}
		return nil
	})}
}

// volumeOf returns the volume of a claim, nil if it gets one only when the pod is scheduled, or why there is none.
func (*volumeZone) volumeOf(pod *Pod, c podClaim, storage Storage) (*corev1.PersistentVolume, string) {
	if c.name == "" {
		return nil, "PersistentVolumeClaim had no name"
	}
	claim := storage.Claim(pod.Namespace, c.name)
	if claim == nil {
		return nil, claimNotFound(c.name).Error()
	}
	if name := claim.Spec.VolumeName; name != "" {
		v := storage.Volume(name)
		if v == nil {
			return nil, apierrors.NewNotFound(corev1.Resource("persistentvolume"), name).Error()
		}
		return v, ""
	}
	name := volume.GetPersistentVolumeClaimClass(claim)
	if name == "" {
		return nil, "PersistentVolumeClaim had no pv name and storageClass name"
	}
	class := storage.Class(name)
	switch {
	case class == nil:
		return nil, apierrors.NewNotFound(storagev1.Resource("storageclass"), name).Error()
	case class.VolumeBindingMode == nil:
		return nil, fmt.Sprintf("VolumeBindingMode not set for StorageClass %q", name)
	case *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer:
		return nil, "PersistentVolume had no name"
	}
	return nil, ""
}

// has reports whether a node has one of the values, for the label or the one that replaced it.
func (t *volumeTopology) has(n *corev1.Node) bool {
	value, ok := n.Labels[t.key]
	switch {
	case ok:
	case t.key == corev1.LabelFailureDomainBetaZone:
		value, ok = n.Labels[corev1.LabelTopologyZone]
	case t.key == corev1.LabelFailureDomainBetaRegion:
		value, ok = n.Labels[corev1.LabelTopologyRegion]
	}
	return ok && slices.Contains(t.values, value)
}
