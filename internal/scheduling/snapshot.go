package scheduling

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Snapshot holds all nodes at one moment, and what plugins read besides. It is immutable; Update returns the next one. Snapshots made from one another
// share counts that plugins keep (see shared), so that preparing for a pod costs little more than what changed.
type Snapshot struct {
	nodes      []*Node          // zones take turns, so that the first nodes are in many zones
	position   map[string]int32 // by name, in nodes; shared while the set of nodes is the same
	images     map[string]ImageSpread
	namespaces map[string]labels.Set
	workloads  Workloads
	storage    Storage
	devices    Devices
	sums       sums
	home       *shared
	serial     uint64 // no two snapshots with different nodes have the same
}

// sums counts nodes by properties that plugins depend on.
type sums struct {
	unschedulable, tainted, softTainted, withAffinity, withAntiAffinity int
}

// ImageSpread is the size of an image and how many nodes have it.
type ImageSpread struct {
	Size  int64
	Nodes int
}

// Workloads finds the selector that a pod without topology spread constraints is spread by: that of its controller together with those of the Services that
// select it.
type Workloads interface {
	// DefaultSelector may return an empty selector, which spreads nothing.
	DefaultSelector(*corev1.Pod) labels.Selector
}

// NewSnapshot returns an empty cluster. workloads may be nil: then no pod is spread by default.
func NewSnapshot(workloads Workloads) *Snapshot {
	return &Snapshot{position: map[string]int32{}, workloads: workloads, storage: noStorage{}, devices: noDevices{}, home: newShared()}
}

// Nodes returns all nodes, in the order in which they should be tried. The slice must not be changed.
func (s *Snapshot) Nodes() []*Node { return s.nodes }

// Node returns a node by name; nil if there is none.
func (s *Snapshot) Node(name string) *Node {
	if i, ok := s.position[name]; ok {
		return s.nodes[i]
	}
	return nil
}

// Namespace returns the labels of a namespace; none if it is unknown.
func (s *Snapshot) Namespace(name string) labels.Set { return s.namespaces[name] }

// Image returns how an image is spread over the nodes.
func (s *Snapshot) Image(name string) ImageSpread { return s.images[name] }

// WithNamespaces returns the snapshot with these namespaces and their labels, which must not change any more.
func (s *Snapshot) WithNamespaces(namespaces map[string]labels.Set) *Snapshot {
	out := *s
	out.namespaces = namespaces
	return &out
}

// Update returns the next snapshot: nodes in put replace those with their names or are new, those named in removed are deleted. It takes the nodes over:
// they come from NewNode, With, Without or WithNode. Several changes in one call cost hardly more than one.
func (s *Snapshot) Update(put []*Node, removed []string) *Snapshot {
	s.home.mu.Lock()
	defer s.home.mu.Unlock()
	out := *s
	out.nodes = slices.Clone(s.nodes)
	images := imageUpdate{base: s.images}
	reorder := false
	for _, name := range removed {
		i, ok := out.position[name]
		if !ok || out.nodes[i] == nil {
			continue
		}
		old := out.nodes[i]
		out.sums.count(old, -1)
		images.count(old, -1)
		out.home.release(old.slot)
		out.nodes[i] = nil
		reorder = true
	}
	added := newNodes{}
	for _, n := range put {
		i, known := out.position[n.Name]
		if !known || out.nodes[i] == nil {
			added.put(n)
			continue
		}
		old := out.nodes[i]
		if old == n {
			continue
		}
		n = out.home.replace(old, n)
		out.nodes[i] = n
		out.sums.count(old, -1)
		out.sums.count(n, 1)
		if !sameMap(old.Images, n.Images) {
			images.count(old, -1)
			images.count(n, 1)
		}
		reorder = reorder || zoneOf(old.Node) != zoneOf(n.Node)
	}
	for i, n := range added.list {
		n = out.home.add(n)
		added.list[i] = n
		out.sums.count(n, 1)
		images.count(n, 1)
	}
	out.images = images.result()
	out.serial = out.home.next()
	if reorder || len(added.list) > 0 {
		out.order(added.list)
	}
	return &out
}

// newNodes holds nodes with new names; of several with one name the last counts.
type newNodes struct {
	list   []*Node
	byName map[string]int
}

func (a *newNodes) put(n *Node) {
	if i, ok := a.byName[n.Name]; ok {
		a.list[i] = n
		return
	}
	if a.byName == nil {
		a.byName = map[string]int{}
	}
	a.byName[n.Name] = len(a.list)
	a.list = append(a.list, n)
}

// order lists the remaining and the added nodes so that zones take turns, each with its nodes in the order they were added.
func (s *Snapshot) order(added []*Node) {
	byZone := map[zone][]*Node{}
	var zones []zone
	all := 0
	for _, list := range [][]*Node{s.nodes, added} {
		for _, n := range list {
			if n == nil {
				continue
			}
			z := zoneOf(n.Node)
			if _, seen := byZone[z]; !seen {
				zones = append(zones, z)
			}
			byZone[z] = append(byZone[z], n)
			all++
		}
	}
	s.nodes, s.position = make([]*Node, 0, all), make(map[string]int32, all)
	for i := 0; len(s.nodes) < all; i++ {
		for _, z := range zones {
			if i < len(byZone[z]) {
				n := byZone[z][i]
				s.position[n.Name] = int32(len(s.nodes))
				s.nodes = append(s.nodes, n)
			}
		}
	}
}

// zone is the region and zone of a node.
type zone struct{ region, zone string }

func zoneOf(n *corev1.Node) zone {
	return zone{
		region: cmp.Or(n.Labels[corev1.LabelTopologyRegion], n.Labels[corev1.LabelFailureDomainBetaRegion]),
		zone:   cmp.Or(n.Labels[corev1.LabelTopologyZone], n.Labels[corev1.LabelFailureDomainBetaZone]),
	}
}

func (s *sums) count(n *Node, sign int) {
	if n.Spec.Unschedulable {
		s.unschedulable += sign
	}
	hard, soft := false, false
	for i := range n.Spec.Taints {
		effect := n.Spec.Taints[i].Effect
		hard, soft = hard || isHard(effect), soft || effect == corev1.TaintEffectPreferNoSchedule
	}
	if hard {
		s.tainted += sign
	}
	if soft {
		s.softTainted += sign
	}
	if len(n.WithAffinity) > 0 {
		s.withAffinity += sign
	}
	if len(n.WithRequiredAntiAffinity) > 0 {
		s.withAntiAffinity += sign
	}
}

// imageUpdate builds the images of the next snapshot; it copies only if any changed.
type imageUpdate struct{ base, changed map[string]ImageSpread }

func (u *imageUpdate) count(n *Node, sign int) {
	if len(n.Images) == 0 {
		return
	}
	if u.changed == nil {
		if u.changed = maps.Clone(u.base); u.changed == nil {
			u.changed = map[string]ImageSpread{}
		}
	}
	for name, size := range n.Images {
		spread := u.changed[name]
		if spread.Nodes == 0 {
			spread.Size = size // nodes may disagree: the first one counts
		}
		if spread.Nodes += sign; spread.Nodes > 0 {
			u.changed[name] = spread
		} else {
			delete(u.changed, name)
		}
	}
}

func (u *imageUpdate) result() map[string]ImageSpread {
	if u.changed == nil {
		return u.base
	}
	return u.changed
}

// sameMap reports whether the two are one map: Node.WithNode keeps it if the images are the same.
func sameMap(a, b map[string]int64) bool {
	return len(a) == len(b) && (len(a) == 0 || reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer())
}
