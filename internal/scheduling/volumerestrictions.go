package scheduling

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// volumeRestrictions refuses nodes where a disk of the pod is attached that can be attached once, and all nodes while another pod uses a claim of the pod
// whose access mode is ReadWriteOncePod: preempting that pod would help.
type volumeRestrictions struct{ diskInUse, claimInUse *Status }

func newVolumeRestrictions() *volumeRestrictions {
	return &volumeRestrictions{
		diskInUse: refuse(VolumeRestrictions, Unschedulable, "node(s) had no available disk"),
		claimInUse: refuse(VolumeRestrictions, Unschedulable,
			"node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"),
	}
}

func (*volumeRestrictions) Name() string { return VolumeRestrictions }

func (*volumeRestrictions) EventsToRegister() []EventWithHint {
	return []EventWithHint{
		{AssignedPod, Delete, func(pod *Pod, e Event) bool {
			return pod.Namespace == e.OldPod.Namespace && (disksConflict(pod, e.OldPod) || slices.ContainsFunc(pod.claims, func(c podClaim) bool {
				return !c.ephemeral && slices.Contains(e.OldPod.claims, c)
			}))
		}},
		{NodeKind, Add, nil},
		{ClaimKind, Add, claimOfPod(false)},
	}
}

func (p *volumeRestrictions) PreFilter(pod *Pod, s *Snapshot) PreFilterResult {
	check := &restrictedVolumes{plugin: p, pod: pod}
	for _, c := range pod.claims {
		if c.ephemeral {
			continue
		}
		claim := s.storage.Claim(pod.Namespace, c.name)
		if claim == nil {
			return PreFilterResult{Status: refuse(VolumeRestrictions, UnschedulableAndUnresolvable, claimNotFound(c.name).Error())}
		}
		if slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod) && !slices.Contains(check.exclusive, c) {
			check.exclusive = append(check.exclusive, c)
		}
	}
	if len(check.exclusive) > 0 {
		check.countUsers(s)
	}
	if len(pod.exclusiveDisks) == 0 && check.users == 0 {
		return PreFilterResult{}
	}
	return PreFilterResult{Check: check}
}

// restrictedVolumes is the Check of volumeRestrictions.
type restrictedVolumes struct {
	plugin    *volumeRestrictions
	pod       *Pod
	exclusive []podClaim // claims that only one pod at a time may use
	users     int        // how many uses of them other pods have
}

// countUsers counts the claims that are in use: there can be one user of each.
func (r *restrictedVolumes) countUsers(s *Snapshot) {
	for _, c := range r.exclusive {
		if slices.ContainsFunc(s.nodes, func(n *Node) bool {
			return slices.ContainsFunc(n.WithVolumes, func(other *Pod) bool { return other.Namespace == r.pod.Namespace && slices.Contains(other.claims, c) })
		}) {
			r.users++
		}
	}
}

// Filter refuses the node if a disk is attached to it already, or a claim is in use anywhere.
func (r *restrictedVolumes) Filter(n *Node) *Status {
	if len(r.pod.exclusiveDisks) > 0 && slices.ContainsFunc(n.WithVolumes, func(other *Pod) bool { return disksConflict(r.pod, other) }) {
		return r.plugin.diskInUse
	}
	if r.users > 0 {
		return r.plugin.claimInUse
	}
	return nil
}

// Clone returns a copy that can be adjusted.
func (r *restrictedVolumes) Clone() Adjustable {
	out := *r
	return &out
}

// AddPod adds the uses of the claims by a pod. kube-scheduler does not compare the namespaces.
func (r *restrictedVolumes) AddPod(pod *Pod, _ *Node) { r.users += r.usesBy(pod) }

// RemovePod removes the uses of the claims by a pod.
func (r *restrictedVolumes) RemovePod(pod *Pod, _ *Node) { r.users -= r.usesBy(pod) }

func (r *restrictedVolumes) usesBy(pod *Pod) (uses int) {
	if pod.Namespace != r.pod.Namespace {
		return 0
	}
	for _, c := range r.exclusive {
		if slices.Contains(pod.claims, c) {
			uses++
		}
	}
	return uses
}

// isExclusiveDisk reports whether a volume is of a kind that only one node, or only readers, can attach.
func isExclusiveDisk(v *corev1.Volume) bool {
	return v.GCEPersistentDisk != nil || v.AWSElasticBlockStore != nil || v.RBD != nil || v.ISCSI != nil
}

// disksConflict reports whether a disk of one pod is one of the other's, and they do not both only read it.
func disksConflict(a, b *Pod) bool {
	return slices.ContainsFunc(a.exclusiveDisks, func(v *corev1.Volume) bool {
		return slices.ContainsFunc(b.exclusiveDisks, func(w *corev1.Volume) bool { return diskConflicts(v, w) })
	})
}

func diskConflicts(v, w *corev1.Volume) bool {
	switch {
	case v.GCEPersistentDisk != nil && w.GCEPersistentDisk != nil:
		a, b := v.GCEPersistentDisk, w.GCEPersistentDisk
		return a.PDName == b.PDName && !(a.ReadOnly && b.ReadOnly)
	case v.AWSElasticBlockStore != nil && w.AWSElasticBlockStore != nil:
		return v.AWSElasticBlockStore.VolumeID == w.AWSElasticBlockStore.VolumeID
	case v.ISCSI != nil && w.ISCSI != nil:
		return v.ISCSI.IQN == w.ISCSI.IQN && !(v.ISCSI.ReadOnly && w.ISCSI.ReadOnly)
	case v.RBD != nil && w.RBD != nil:
		a, b := v.RBD, w.RBD
		return a.RBDPool == b.RBDPool && a.RBDImage == b.RBDImage && !(a.ReadOnly && b.ReadOnly) &&
			slices.ContainsFunc(a.CephMonitors, func(m string) bool { return slices.Contains(b.CephMonitors, m) })
	}
	return false
}
