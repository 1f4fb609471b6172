package scheduling

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// Kind is the kind of object whose change may make an unschedulable pod schedulable.
type Kind int

const (
	AssignedPod    Kind = iota // a pod on a node, or assumed there; Delete also when it terminates or its binding fails
	UnscheduledPod             // another pod that is not on a node
	TargetPod                  // the refused pod itself
	NodeKind
	ClaimKind  // PersistentVolumeClaims
	VolumeKind // PersistentVolumes
	StorageClassKind
	CSINodeKind
	CSIDriverKind
	CapacityKind   // CSIStorageCapacities
	AttachmentKind // VolumeAttachments
	ResourceClaimKind
	DeviceClassKind
	ResourceSliceKind // also when a DeviceTaintRule changes their devices

	Kinds // the number of kinds
)

var kindNames = [Kinds]string{"AssignedPod", "UnscheduledPod", "TargetPod", "Node", "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode",
	"CSIDriver", "CSIStorageCapacity", "VolumeAttachment", "ResourceClaim", "DeviceClass", "ResourceSlice"}

func (k Kind) String() string { return kindNames[k] }

// Action is what happened to an object; a set of bits.
type Action int

const (
	Add Action = 1 << iota
	Delete
	UpdateNodeAllocatable
	UpdateNodeLabel
	UpdateNodeTaint // taints, or uncordoned
	UpdateNodeCondition
	UpdateNodeAnnotation
	UpdateNodeDeclaredFeature
	UpdatePodLabel
	UpdatePodScaleDown // some request became smaller
	UpdatePodScaleUp
	UpdatePodToleration
	UpdatePodSchedulingGatesEliminated
	UpdatePodGeneratedResourceClaim
	UpdateOther // something else changed, which no plugin reads
	Update      // an object that is neither a pod nor a node changed

	updatesOfPods = UpdatePodLabel | UpdatePodScaleDown | UpdatePodScaleUp | UpdatePodToleration | UpdatePodSchedulingGatesEliminated |
		UpdatePodGeneratedResourceClaim | UpdateOther
)

var actionNames = []string{"Add", "Delete", "UpdateNodeAllocatable", "UpdateNodeLabel", "UpdateNodeTaint", "UpdateNodeCondition",
	"UpdateNodeAnnotation", "UpdateNodeDeclaredFeature", "UpdatePodLabel", "UpdatePodScaleDown", "UpdatePodScaleUp",
	"UpdatePodToleration", "UpdatePodSchedulingGatesEliminated", "UpdatePodGeneratedResourceClaim", "Update", "Update"}

// String returns the name of the first action of the set, as in upstream's metrics and logs.
func (a Action) String() string {
	for i, name := range actionNames {
		if a&(1<<i) != 0 {
			return name
		}
	}
	return "None"
}

// Event is a change in the cluster. Of the objects, those of its kind are set: only New on Add, only Old on Delete, both on updates.
type Event struct {
	Kind             Kind
	Action           Action // one or more update bits, or Add, or Delete
	OldPod, NewPod   *Pod
	OldNode, NewNode *corev1.Node
	Old, New         any     // objects of other kinds
	Devices          Devices // what hints may look up
}

// updated returns the objects of an event about neither a pod nor a node.
func updated[T any](e Event) (old, new T) {
	old, _ = e.Old.(T)
	new, _ = e.New.(T)
	return old, new
}

// EventWithHint is a kind of event that may make a pod schedulable that a plugin refused (upstream's ClusterEventWithHint).
type EventWithHint struct {
	Kind    Kind
	Actions Action
	// Hint reports whether this event may make this pod pass the plugin. nil: always.
	Hint func(pod *Pod, e Event) bool
}

// MayHelp reports whether the event may make the pod schedulable.
func (i EventWithHint) MayHelp(pod *Pod, e Event) bool {
	return i.Kind == e.Kind && i.Actions&e.Action != 0 && (i.Hint == nil || i.Hint(pod, e))
}

// NodeUpdate returns what changed about a node that scheduling depends on; 0 is nothing.
func NodeUpdate(old, new *corev1.Node) Action {
	var a Action
	if old.Spec.Unschedulable && !new.Spec.Unschedulable || !equality.Semantic.DeepEqual(old.Spec.Taints, new.Spec.Taints) {
		a |= UpdateNodeTaint
	}
	if !equality.Semantic.DeepEqual(old.Status.Allocatable, new.Status.Allocatable) {
		a |= UpdateNodeAllocatable
	}
	if !maps.Equal(old.Labels, new.Labels) {
		a |= UpdateNodeLabel
	}
	if !maps.Equal(conditions(old), conditions(new)) {
		a |= UpdateNodeCondition
	}
	if !maps.Equal(old.Annotations, new.Annotations) {
		a |= UpdateNodeAnnotation
	}
	if !slices.Equal(old.Status.DeclaredFeatures, new.Status.DeclaredFeatures) {
		a |= UpdateNodeDeclaredFeature
	}
	return a
}

func conditions(n *corev1.Node) map[corev1.NodeConditionType]corev1.ConditionStatus {
	m := make(map[corev1.NodeConditionType]corev1.ConditionStatus, len(n.Status.Conditions))
	for _, c := range n.Status.Conditions {
		m[c.Type] = c.Status
	}
	return m
}

// PodUpdate returns what changed about a pod that scheduling depends on; UpdateOther if nothing that a plugin reads.
func PodUpdate(old, new *Pod) Action {
	var a Action
	if !maps.Equal(old.Labels, new.Labels) {
		a |= UpdatePodLabel
	}
	if !old.Requests.Within(&new.Requests) {
		a |= UpdatePodScaleDown
	}
	if !new.Requests.Within(&old.Requests) {
		a |= UpdatePodScaleUp
	}
	if len(old.Spec.SchedulingGates) != 0 && len(new.Spec.SchedulingGates) == 0 {
		a |= UpdatePodSchedulingGatesEliminated
	}
	// Tolerations can be added, never changed or removed.
	if len(old.Spec.Tolerations) != len(new.Spec.Tolerations) {
		a |= UpdatePodToleration
	}
	if !resourceclaim.PodStatusEqual(old.Status.ResourceClaimStatuses, new.Status.ResourceClaimStatuses) {
		a |= UpdatePodGeneratedResourceClaim
	}
	if a == 0 {
		a = UpdateOther
	}
	return a
}
