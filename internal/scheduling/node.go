package scheduling

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Node is a node with its pods. It is immutable: With, Without and WithNode return a new Node, which shares what did not change.
type Node struct {
	// home, slot and the versions locate the node in a snapshot; home is nil if it is in none. See shared.
	home         *shared
	version      uint64
	labelVersion uint64
	slot         int32

	Requested   Resources // by its pods, including assumed ones
	NonZero     CPUMemory // the same for scoring
	Allocatable Resources
	Pods        []*Pod
	UsedPorts   []HostPort
	// WithAffinity holds the pods of this node with terms of pod affinity or anti-affinity, WithRequiredAntiAffinity those with required anti-affinity.
	WithAffinity, WithRequiredAntiAffinity []*Pod
	// WithVolumes holds the pods of this node with volumes that may keep other pods off it.
	WithVolumes []*Pod
	Images      map[string]int64 // name to size; shared, never changed

	*corev1.Node
}

// NewNode returns a node with the pods on it.
func NewNode(node *corev1.Node, pods ...*Pod) *Node {
	n := (&Node{}).WithNode(node)
	for _, p := range pods {
		n.add(p)
	}
	return n
}

// WithNode returns the node with a changed object.
func (n *Node) WithNode(node *corev1.Node) *Node {
	out := n.copyOutside()
	out.Node = node
	out.Allocatable = NewResources(node.Status.Allocatable)
	if n.Node == nil || !sameImages(n.Node.Status.Images, node.Status.Images) {
		out.Images = make(map[string]int64, 2*len(node.Status.Images))
		for i := range node.Status.Images {
			for _, name := range node.Status.Images[i].Names {
				out.Images[name] = node.Status.Images[i].SizeBytes
			}
		}
	}
	return out
}

// copyOutside returns a copy that is in no snapshot.
func (n *Node) copyOutside() *Node {
	out := *n
	out.home = nil
	return &out
}

func sameImages(a, b []corev1.ContainerImage) bool {
	return slices.EqualFunc(a, b, func(a, b corev1.ContainerImage) bool {
		return a.SizeBytes == b.SizeBytes && slices.Equal(a.Names, b.Names)
	})
}

// With returns the node with one more pod.
func (n *Node) With(pod *Pod) *Node {
	out := n.copyOutside()
	// The slices have no spare capacity: appending to the copy must not write into what the original and its other copies share.
	out.Pods = append(make([]*Pod, 0, len(n.Pods)+1), n.Pods...)
	out.UsedPorts = slices.Clip(out.UsedPorts)
	out.WithAffinity, out.WithRequiredAntiAffinity = slices.Clip(out.WithAffinity), slices.Clip(out.WithRequiredAntiAffinity)
	out.WithVolumes = slices.Clip(out.WithVolumes)
	out.add(pod)
	return out
}

func (n *Node) add(pod *Pod) {
	n.Pods = append(n.Pods, pod)
	n.UsedPorts = append(n.UsedPorts, pod.HostPorts...)
	if pod.hasAffinity() {
		n.WithAffinity = append(n.WithAffinity, pod)
	}
	if len(pod.RequiredAntiAffinity) > 0 {
		n.WithRequiredAntiAffinity = append(n.WithRequiredAntiAffinity, pod)
	}
	if pod.usesVolumes() {
		n.WithVolumes = append(n.WithVolumes, pod)
	}
	n.sum(pod, 1)
}

func (n *Node) sum(pod *Pod, sign int64) {
	n.Requested = n.Requested.plus(&pod.Requests, sign)
	n.NonZero.MilliCPU += sign * pod.NonZero.MilliCPU
	n.NonZero.Memory += sign * pod.NonZero.Memory
}

// Without returns the node without the pod of this UID; the same node if it has none.
func (n *Node) Without(uid types.UID) *Node {
	i := slices.IndexFunc(n.Pods, func(p *Pod) bool { return p.UID == uid })
	if i < 0 {
		return n
	}
	pod := n.Pods[i]
	out := n.copyOutside()
	out.Pods = without(n.Pods, pod)
	if pod.hasAffinity() {
		out.WithAffinity = without(n.WithAffinity, pod)
	}
	if len(pod.RequiredAntiAffinity) > 0 {
		out.WithRequiredAntiAffinity = without(n.WithRequiredAntiAffinity, pod)
	}
	if pod.usesVolumes() {
		out.WithVolumes = without(n.WithVolumes, pod)
	}
	if len(pod.HostPorts) > 0 {
		out.UsedPorts = nil
		for _, p := range out.Pods {
			out.UsedPorts = append(out.UsedPorts, p.HostPorts...)
		}
	}
	out.sum(pod, -1)
	return out
}

func without(pods []*Pod, pod *Pod) []*Pod {
	out := make([]*Pod, 0, max(len(pods)-1, 0))
	for _, p := range pods {
		if p != pod {
			out = append(out, p)
		}
	}
	return out
}

func (p *Pod) hasAffinity() bool {
	return len(p.RequiredAffinity)+len(p.RequiredAntiAffinity)+len(p.PreferredAffinity)+len(p.PreferredAntiAffinity) > 0
}
