package scheduling

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"
	schedv1 "k8s.io/kube-scheduler/config/v1"
)

// volumeBinding allows nodes that can reach the volumes of the pod. For claims that wait for their first consumer it finds volumes that exist, or has
// them provisioned for the node; which it does for the node that was chosen is a VolumeReservation. Volumes of plugins that were part of Kubernetes
// before CSI are not translated to CSI: their node affinity is that of the PersistentVolume.
type volumeBinding struct {
	timeout time.Duration
	shape   []schedv1.UtilizationShapePoint

	unbound *Status
}

func newVolumeBinding(args *schedv1.VolumeBindingArgs) *volumeBinding {
	return &volumeBinding{
		timeout: time.Duration(*args.BindTimeoutSeconds) * time.Second, shape: args.Shape,
		unbound: refuse(VolumeBinding, UnschedulableAndUnresolvable, "pod has unbound immediate PersistentVolumeClaims"),
	}
}

func (*volumeBinding) Name() string { return VolumeBinding }

func (*volumeBinding) EventsToRegister() []EventWithHint {
	return []EventWithHint{
		{StorageClassKind, Add | Update, func(_ *Pod, e Event) bool {
			old, new := updated[*storagev1.StorageClass](e)
			return old == nil || !equality.Semantic.DeepEqual(old.AllowedTopologies, new.AllowedTopologies)
		}},
		{ClaimKind, Add | Update, claimOfPod(true)},
		{VolumeKind, Add | Update, nil},
		{NodeKind, Add | UpdateNodeLabel, nil},
		{CSINodeKind, Add | Update, func(_ *Pod, e Event) bool {
			old, new := updated[*storagev1.CSINode](e)
			return old == nil || old.Annotations[corev1.MigratedPluginsAnnotationKey] != new.Annotations[corev1.MigratedPluginsAnnotationKey]
		}},
		{CSIDriverKind, Update, func(pod *Pod, e Event) bool {
			old, new := updated[*storagev1.CSIDriver](e)
			return tracksCapacity(old) && !tracksCapacity(new) && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
				return v.CSI != nil && v.CSI.Driver == new.Name
			})
		}},
		{CapacityKind, Add | Update, func(_ *Pod, e Event) bool {
			old, new := updated[*storagev1.CSIStorageCapacity](e)
			if old == nil {
				return true
			}
			before, after := largestVolume(old), largestVolume(new)
			return after != nil && (before == nil || after.Value() > before.Value())
		}},
	}
}

// claimOfPod returns the hint that a claim of the pod was created or changed.
func claimOfPod(withEphemeral bool) func(*Pod, Event) bool {
	return func(pod *Pod, e Event) bool {
		_, claim := updated[*corev1.PersistentVolumeClaim](e)
		return pod.usesClaim(claim, withEphemeral)
	}
}

func (p *volumeBinding) PreFilter(pod *Pod, s *Snapshot) PreFilterResult {
	if len(pod.claims) == 0 {
		return PreFilterResult{}
	}
	claims, status := p.claimsOf(pod, s.storage)
	if status != nil {
		return PreFilterResult{Status: status}
	}
	return PreFilterResult{Check: claims, Uncached: true}
}

// volumeClaims is the Check of volumeBinding: the claims of a pod, and the volumes that unbound ones may be bound to.
type volumeClaims struct {
	plugin  *volumeBinding
	storage Storage
	bound   []*corev1.PersistentVolumeClaim
	waiting []*corev1.PersistentVolumeClaim       // for the pod, their first consumer; those that request least first
	volumes map[string][]*corev1.PersistentVolume // by the classes of waiting ones
}

func (p *volumeBinding) claimsOf(pod *Pod, storage Storage) (*volumeClaims, *Status) {
	out := &volumeClaims{plugin: p, storage: storage, volumes: map[string][]*corev1.PersistentVolume{}}
	all := make([]*corev1.PersistentVolumeClaim, 0, len(pod.claims))
	for _, c := range pod.claims {
		claim, err := pod.claim(c, storage)
		if err != nil {
			return nil, refuse(VolumeBinding, UnschedulableAndUnresolvable, err.Error())
		}
		if !slices.Contains(all, claim) { // several volumes of a pod may use one claim
			all = append(all, claim)
		}
	}
	unbound := false
	for _, claim := range all {
		if IsClaimBound(claim) {
			out.bound = append(out.bound, claim)
			continue
		}
		waits, err := waitsForConsumer(claim, storage)
		if err != nil {
			return nil, failure(VolumeBinding, err)
		}
		if !waits || claim.Spec.VolumeName != "" {
			unbound = true // the PersistentVolume controller binds it without the scheduler
			continue
		}
		out.waiting = append(out.waiting, claim)
		class := volume.GetPersistentVolumeClaimClass(claim)
		if _, known := out.volumes[class]; !known {
			out.volumes[class] = storage.VolumesOfClass(class)
		}
	}
	if unbound {
		return nil, p.unbound
	}
	slices.SortStableFunc(out.waiting, func(a, b *corev1.PersistentVolumeClaim) int {
		x, y := a.Spec.Resources.Requests[corev1.ResourceStorage], b.Spec.Resources.Requests[corev1.ResourceStorage]
		return x.Cmp(y)
	})
	return out, nil
}

// IsClaimBound reports whether the PersistentVolume controller has bound the claim.
func IsClaimBound(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Spec.VolumeName != "" && metav1.HasAnnotation(claim.ObjectMeta, volume.AnnBindCompleted)
}

// waitsForConsumer reports whether a claim is bound only when a pod that uses it is scheduled.
func waitsForConsumer(claim *corev1.PersistentVolumeClaim, storage Storage) (bool, error) {
	name := volume.GetPersistentVolumeClaimClass(claim)
	if name == "" {
		return false, nil
	}
	class := storage.Class(name)
	if class == nil {
		return false, nil
	}
	if class.VolumeBindingMode == nil {
		return false, fmt.Errorf("VolumeBindingMode not set for StorageClass %q", name)
	}
	return *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer, nil
}

// Reasons to refuse a node.
const (
	reasonVolumeAffinity = "node(s) didn't match PersistentVolume's node affinity"
	reasonNoVolume       = "node(s) didn't find available persistent volumes to bind"
	reasonNoSpace        = "node(s) did not have enough free storage"
	reasonVolumeGone     = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
)

// Filter returns nil if the node can reach the bound volumes of the pod and there are, or can be, volumes for its other claims.
func (c *volumeClaims) Filter(n *Node) *Status {
	_, reasons, err := c.find(n.Node)
	switch {
	case err != nil:
		return failure(VolumeBinding, err)
	case len(reasons) > 0:
		return refuse(VolumeBinding, UnschedulableAndUnresolvable, reasons...)
	}
	return nil
}

// nodeVolumes holds the volumes that the waiting claims of a pod get on a node.
type nodeVolumes struct {
	existing []existingVolume
	provided []providedVolume
}

type existingVolume struct {
	claim  *corev1.PersistentVolumeClaim
	volume *corev1.PersistentVolume
}

type providedVolume struct {
	claim    *corev1.PersistentVolumeClaim
	capacity *storagev1.CSIStorageCapacity // what it is provisioned from, if the driver tracks that
}

// find returns the volumes of the pod on a node, or the reasons why it cannot have them.
func (c *volumeClaims) find(n *corev1.Node) (found nodeVolumes, reasons []string, err error) {
	for _, claim := range c.bound {
		v := c.storage.Volume(claim.Spec.VolumeName)
		if v == nil {
			reasons = append(reasons, reasonVolumeGone)
			break
		}
		if volume.CheckNodeAffinity(v, n.Labels) != nil {
			reasons = append(reasons, reasonVolumeAffinity)
			break
		}
	}
	var toMatch, toProvision []*corev1.PersistentVolumeClaim
	for _, claim := range c.waiting {
		if selected, ok := claim.Annotations[volume.AnnSelectedNode]; !ok {
			toMatch = append(toMatch, claim)
		} else if selected == n.Name {
			toProvision = append(toProvision, claim)
		} else {
			return found, append(reasons, reasonNoVolume), nil // it is being provisioned for another node
		}
	}
	chosen := map[string]*corev1.PersistentVolume{}
	for _, claim := range toMatch {
		v, err := volume.FindMatchingVolume(claim, c.volumes[volume.GetPersistentVolumeClaimClass(claim)], n, chosen, true, true)
		if err != nil {
			return found, nil, err
		}
		if v == nil {
			toProvision = append(toProvision, claim)
			continue
		}
		chosen[v.Name] = v
		found.existing = append(found.existing, existingVolume{claim, v})
	}
	for _, claim := range toProvision {
		capacity, reason, err := c.provision(claim, n)
		if err != nil {
			return found, nil, err
		}
		if reason != "" {
			found.provided = nil
			return found, append(reasons, reason), nil
		}
		found.provided = append(found.provided, providedVolume{claim, capacity})
	}
	return found, reasons, nil
}

// VolumeReservation is what volumeBinding reserves for a pod: the volumes that its claims are to be bound to. The pod can be bound when its claims are.
type VolumeReservation struct {
	Node string
	// Existing holds volumes that exist, in a version with the reference to their claim, with their claims.
	Existing []ReservedVolume
	// Provisioned holds the claims that volumes are to be provisioned for, in a version with the name of the node.
	Provisioned []*corev1.PersistentVolumeClaim
	// Timeout is how long to wait until the claims are bound.
	Timeout time.Duration
}

// ReservedVolume is a volume and the claim that it is to be bound to.
type ReservedVolume struct {
	Volume *corev1.PersistentVolume
	Claim  *corev1.PersistentVolumeClaim
	// Changed is set if the volume did not refer to the claim before.
	Changed bool
}

// Plugin returns the name of the plugin.
func (*VolumeReservation) Plugin() string { return VolumeBinding }

// Reserve returns the VolumeReservation for a node.
func (c *volumeClaims) Reserve(n *Node) (Reservation, error) {
	if len(c.waiting) == 0 {
		return nil, nil
	}
	found, reasons, err := c.find(n.Node)
	if err != nil {
		return nil, err
	}
	if len(reasons) > 0 {
		return nil, errors.New(reasons[0]) // it has changed since Filter
	}
	r := &VolumeReservation{Node: n.Name, Timeout: c.plugin.timeout}
	for _, e := range found.existing {
		v, changed, err := volume.GetBindVolumeToClaim(e.volume, e.claim)
		if err != nil {
			return nil, err
		}
		r.Existing = append(r.Existing, ReservedVolume{v, e.claim, changed})
	}
	for _, p := range found.provided {
		claim := *p.claim
		claim.Annotations = maps.Clone(claim.Annotations)
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, volume.AnnSelectedNode, n.Name)
		r.Provisioned = append(r.Provisioned, &claim)
	}
	return r, nil
}

func (p *volumeBinding) PreScore(pod *Pod, s *Snapshot, _ []*Node) (Scorer, *Status) {
	if len(pod.claims) == 0 || len(p.shape) == 0 {
		return nil, nil
	}
	claims, status := p.claimsOf(pod, s.storage)
	if status != nil {
		return nil, status
	}
	if len(claims.waiting) == 0 {
		return nil, nil
	}
	return &volumeScorer{claims, &strategy{shape: p.shape}}, nil
}

// volumeScorer scores nodes by how much of the volumes, or of the space that they are provisioned from, would be used.
type volumeScorer struct {
	claims *volumeClaims
	shape  *strategy
}

func (*volumeScorer) Local() bool { return false }

func (*volumeScorer) Normalize([]*Node, []int64) {}

func (s *volumeScorer) Score(nodes []*Node, scores []int64) {
	for i, n := range nodes {
		scores[i] = 0
		if found, reasons, err := s.claims.find(n.Node); err == nil && len(reasons) == 0 {
			scores[i] = s.score(found)
		}
	}
}

type storageUse struct{ requested, capacity int64 }

// score returns the mean score of the storage classes.
func (s *volumeScorer) score(v nodeVolumes) int64 {
	classes := map[string]storageUse{}
	for _, e := range v.existing {
		requested, capacity := e.claim.Spec.Resources.Requests[corev1.ResourceStorage], e.volume.Spec.Capacity[corev1.ResourceStorage]
		use := classes[e.volume.Spec.StorageClassName]
		classes[e.volume.Spec.StorageClassName] = storageUse{use.requested + requested.Value(), use.capacity + capacity.Value()}
	}
	if len(v.existing) == 0 {
		for _, p := range v.provided {
			if p.capacity == nil || p.capacity.Capacity == nil {
				continue
			}
			class := volume.GetPersistentVolumeClaimClass(p.claim)
			requested := p.claim.Spec.Resources.Requests[corev1.ResourceStorage]
			// All claims of a class are provisioned from one capacity.
			classes[class] = storageUse{classes[class].requested + requested.Value(), p.capacity.Capacity.Value()}
		}
	}
	if len(classes) == 0 {
		return 0
	}
	var sum int64
	for _, use := range classes {
		utilization := int64(100)
		if use.capacity != 0 && use.requested <= use.capacity {
			utilization = use.requested * 100 / use.capacity
		}
		sum += s.shape.interpolate(utilization)
	}
	return int64(math.Round(float64(sum) / float64(len(classes))))
}
