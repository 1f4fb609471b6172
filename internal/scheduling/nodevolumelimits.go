package scheduling

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/component-helpers/storage/volume"
)

// nodeVolumeLimits refuses nodes that cannot attach all CSI volumes of the pod, by the number that the CSINode says the driver can attach, and nodes without
// a driver that asks for that. Volumes of plugins that were part of Kubernetes before CSI are not counted.
type nodeVolumeLimits struct{ exceeded *Status }

func newNodeVolumeLimits() *nodeVolumeLimits {
	return &nodeVolumeLimits{refuse(NodeVolumeLimits, Unschedulable, "node(s) exceed max volume count")}
}

func (*nodeVolumeLimits) Name() string { return NodeVolumeLimits }

func (*nodeVolumeLimits) EventsToRegister() []EventWithHint {
	return []EventWithHint{
		{CSINodeKind, Add, nil},
		{CSINodeKind, Update, func(_ *Pod, e Event) bool {
			old, new := updated[*storagev1.CSINode](e)
			before := volumeLimits(old)
			for driver, limit := range volumeLimits(new) {
				if limit > before[driver] {
					return true
				}
			}
			return false
		}},
		{AssignedPod, Delete, func(_ *Pod, e Event) bool { return len(e.OldPod.claims) > 0 && e.OldPod.placed() }},
		{ClaimKind, Add, claimOfPod(true)},
		{AttachmentKind, Delete, func(pod *Pod, _ Event) bool {
			for _, c := range pod.claims {
				if !c.ephemeral {
					return true
				}
			}
			return false
		}},
	}
}

func (p *nodeVolumeLimits) PreFilter(pod *Pod, s *Snapshot) PreFilterResult {
	if len(pod.claims) == 0 {
		return PreFilterResult{}
	}
	return PreFilterResult{Check: &limitedVolumes{p, pod, s.storage}, Uncached: true}
}

// limitedVolumes is the Check of nodeVolumeLimits.
type limitedVolumes struct {
	plugin  *nodeVolumeLimits
	pod     *Pod
	storage Storage
}

// csiVolume is a volume of a driver. Volumes that do not exist yet have a handle that no other has.
type csiVolume struct{ driver, handle string }

// Filter refuses the node if a driver is missing, or can attach fewer volumes than there would be.
func (l *limitedVolumes) Filter(n *Node) *Status {
	wanted := map[csiVolume]bool{}
	for _, c := range l.pod.claims {
		claim := l.storage.Claim(l.pod.Namespace, c.name)
		if claim == nil {
			return refuse(NodeVolumeLimits, UnschedulableAndUnresolvable,
				fmt.Sprintf("looking up PVC %s/%s: %v", l.pod.Namespace, c.name, claimNotFound(c.name)))
		}
		if err := l.add(wanted, l.pod, c, claim); err != nil {
			return failure(NodeVolumeLimits, err)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	csiNode := l.storage.CSINode(n.Name)
	for v := range wanted {
		if !hasDriver(csiNode, l.storage.CSIDriver(v.driver)) {
			return refuse(NodeVolumeLimits, Unschedulable, v.driver+" CSI driver is not installed on the node")
		}
	}
	limits := volumeLimits(csiNode)
	if len(limits) == 0 {
		return nil
	}
	used, err := l.used(n)
	if err != nil {
		return failure(NodeVolumeLimits, err)
	}
	count := map[string]int{}
	for v := range used {
		count[v.driver]++
	}
	needs := map[string]bool{} // drivers that must attach another volume
	for v := range wanted {
		if !used[v] {
			count[v.driver]++
			needs[v.driver] = true
		}
	}
	for driver := range needs {
		if limit, limited := limits[driver]; limited && count[driver] > int(limit) {
			return l.plugin.exceeded
		}
	}
	return nil
}

// used returns the volumes of the pods on the node, and those that are still attached.
func (l *limitedVolumes) used(n *Node) (map[csiVolume]bool, error) {
	used := map[csiVolume]bool{}
	for _, other := range n.WithVolumes {
		for _, c := range other.claims {
			if claim := l.storage.Claim(other.Namespace, c.name); claim != nil {
				if err := l.add(used, other, c, claim); err != nil {
					return nil, err
				}
			}
		}
	}
	for _, a := range l.storage.Attachments(n.Name) {
		if a.Spec.Attacher == "" || a.Spec.Source.PersistentVolumeName == nil {
			continue
		}
		if v := l.storage.Volume(*a.Spec.Source.PersistentVolumeName); v != nil && v.Spec.CSI != nil {
			used[csiVolume{a.Spec.Attacher, v.Spec.CSI.VolumeHandle}] = true
		}
	}
	return used, nil
}

// add adds the volume of a claim to a set, if it is a CSI volume.
func (l *limitedVolumes) add(to map[csiVolume]bool, pod *Pod, c podClaim, claim *corev1.PersistentVolumeClaim) error {
	if c.name == "" {
		return errors.New("PersistentVolumeClaim had no name")
	}
	if c.ephemeral {
		if err := ephemeral.VolumeIsForPod(pod.Pod, claim); err != nil {
			return err
		}
	}
	if v := l.volumeOf(claim); v.driver != "" && v.handle != "" {
		to[v] = true
	}
	return nil
}

func (l *limitedVolumes) volumeOf(claim *corev1.PersistentVolumeClaim) csiVolume {
	if claim.Spec.VolumeName != "" {
		if v := l.storage.Volume(claim.Spec.VolumeName); v != nil {
			if v.Spec.CSI == nil {
				return csiVolume{}
			}
			return csiVolume{v.Spec.CSI.Driver, v.Spec.CSI.VolumeHandle}
		}
	}
	name := volume.GetPersistentVolumeClaimClass(claim)
	if name == "" {
		return csiVolume{}
	}
	class := l.storage.Class(name)
	if class == nil {
		return csiVolume{}
	}
	return csiVolume{class.Provisioner, "\x00" + claim.Namespace + "/" + claim.Name}
}

// hasDriver reports whether pods with volumes of the driver may run on the node.
func hasDriver(n *storagev1.CSINode, driver *storagev1.CSIDriver) bool {
	if driver == nil || driver.Spec.PreventPodSchedulingIfMissing == nil || !*driver.Spec.PreventPodSchedulingIfMissing {
		return true
	}
	if n != nil {
		for i := range n.Spec.Drivers {
			if n.Spec.Drivers[i].Name == driver.Name {
				return true
			}
		}
	}
	return false
}

// volumeLimits returns how many volumes the drivers of a node can attach, without those that do not say.
func volumeLimits(n *storagev1.CSINode) map[string]int32 {
	limits := map[string]int32{}
	if n != nil {
		for _, d := range n.Spec.Drivers {
			if d.Allocatable != nil && d.Allocatable.Count != nil {
				limits[d.Name] = *d.Allocatable.Count
			}
		}
	}
	return limits
}
