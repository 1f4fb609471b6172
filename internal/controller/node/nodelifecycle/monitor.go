package nodelifecycle

import (
	"cmp"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/node/topology"

	"skiff/internal/controller"
	"skiff/internal/controller/node"
)

// startupGrace is how long a new node may take to post its first status.
const startupGrace = 60 * time.Second

type settings struct {
	period       time.Duration // time between passes
	grace        time.Duration // how long a kubelet may not post before its node is unreachable
	startupGrace time.Duration // the same for a node that has not posted a status yet

	rate           float64 // nodes tainted NoExecute per second and zone
	secondaryRate  float64 // the same in a large zone with partial disruption
	largeZone      int     // zones with more nodes are large
	unhealthyShare float64 // share of not ready nodes from which a zone has a partial disruption
}

// monitor remembers nodes from one pass to the next. It has no clock and carries out nothing: a pass calls observe, carries out what that returns,
// and calls evaluate with the results; in between, toTaint returns the nodes to taint next.
type monitor struct {
	settings settings

	mu              sync.Mutex
	nodes           map[string]*nodeHealth
	zones           map[string]*zone
	taintingStopped bool // no node is ready, so none is tainted
}

// nodeHealth holds when a node's kubelet last posted, by this side's clock: clocks of nodes may be wrong.
type nodeHealth struct {
	uid       types.UID
	postedAt  time.Time
	hasStatus bool              // there was a Ready condition
	heartbeat metav1.Time       // lastHeartbeatTime of the Ready condition
	renewed   *metav1.MicroTime // renewTime of the lease
	markPods  bool              // its pods are to be marked as not ready
}

func newMonitor(s settings) *monitor {
	return &monitor{settings: s, nodes: map[string]*nodeHealth{}, zones: map[string]*zone{}}
}

// observe updates the nodes' health. It returns Events about nodes that were added and removed, and the unreachable nodes with the status that
// they should have.
func (m *monitor) observe(nodes []*corev1.Node, lease func(name string) *coordinationv1.Lease, now time.Time) (events []controller.Action, unreachable []*corev1.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	existing := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		existing[n.Name] = true
		s := m.nodes[n.Name]
		if s != nil && s.uid != n.UID { // another node of that name
			events = append(events, removed(n.Name, s.uid))
			s = nil
		}
		if s == nil {
			s = &nodeHealth{uid: n.UID, postedAt: n.CreationTimestamp.Time}
			m.nodes[n.Name] = s
			events = append(events, node.Event(n.Name, n.UID, "RegisteredNode", "Registered Node "+n.Name+" in Controller"))
			// A former run of this loop may have set it to Unknown and ended before it marked the pods.
			ready := node.Ready(n)
			s.markPods = ready != nil && ready.Status == corev1.ConditionUnknown
		}
		if m.isUnreachable(s, n, lease(n.Name), now) {
			if ready := node.Ready(n); ready == nil || ready.Status != corev1.ConditionUnknown {
				unreachable = append(unreachable, withUnknownConditions(n, now))
			}
		}
	}
	for name, s := range m.nodes {
		if !existing[name] {
			events = append(events, removed(name, s.uid))
			delete(m.nodes, name)
		}
	}
	return events, unreachable
}

func removed(name string, uid types.UID) controller.Action {
	return node.Event(name, uid, "RemovingNode", "Removing Node "+name+" from Controller")
}

// isUnreachable updates a node's health and reports whether its kubelet has not posted for the grace period. A node that never posted a status is
// healthy as long as it renews its lease.
func (m *monitor) isUnreachable(s *nodeHealth, n *corev1.Node, lease *coordinationv1.Lease, now time.Time) bool {
	grace := m.settings.startupGrace
	ready := node.Ready(n)
	if ready != nil {
		grace = m.settings.grace
		if !s.hasStatus || !s.heartbeat.Equal(&ready.LastHeartbeatTime) {
			s.postedAt = now
		}
		s.heartbeat = ready.LastHeartbeatTime
	}
	s.hasStatus = ready != nil
	if lease != nil && lease.Spec.RenewTime != nil && (s.renewed == nil || s.renewed.Before(lease.Spec.RenewTime)) {
		s.renewed = lease.Spec.RenewTime
		s.postedAt = now
	}
	return now.After(s.postedAt.Add(grace))
}

// renewed returns when a node last renewed its lease, as far as observed.
func (m *monitor) renewed(name string) *metav1.MicroTime {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.nodes[name]; s != nil && s.renewed != nil {
		return s.renewed
	}
	return &metav1.MicroTime{}
}

// evaluation is the result of a pass.
type evaluation struct {
	actions     []controller.Action
	unreadyPods []string // nodes whose pods are to be marked as not ready
}

// evaluate decides about all nodes. marked holds nodes whose status has just been set to Unknown, failed those where that failed: nothing is
// decided about them in this pass.
func (m *monitor) evaluate(nodes []*corev1.Node, marked map[string]*corev1.Node, failed map[string]bool, now time.Time) evaluation {
	m.mu.Lock()
	defer m.mu.Unlock()
	var v evaluation
	counts := map[string]*zoneCounts{}
	toTaint := map[string][]string{}
	for _, n := range nodes {
		key := topology.GetZoneKey(n)
		t := m.countsOf(key, counts)
		if failed[n.Name] {
			continue
		}
		s, wasReady := m.nodes[n.Name], isReady(n)
		if written := marked[n.Name]; written != nil {
			n = written
		}
		if _, excluded := n.Labels[labelExcludeDisruption]; !excluded {
			if isReady(n) {
				t.ready++
			} else {
				t.notReady++
			}
		}
		ready := node.Ready(n)
		switch {
		case ready == nil:
			continue
		case ready.Status == corev1.ConditionTrue:
			s.markPods = false
			continue
		case wasReady: // this pass found it unreachable
			v.actions = append(v.actions, node.StatusEvent(n, "NodeNotReady"))
			s.markPods = true
		}
		if s.markPods {
			v.unreadyPods = append(v.unreadyPods, n.Name)
		}
		if !node.HasTaint(n, notReady.Key, notReady.Effect) && !node.HasTaint(n, unreachable.Key, unreachable.Effect) {
			toTaint[key] = append(toTaint[key], n.Name)
		}
	}
	for key, z := range m.zones {
		z.setQueue(toTaint[key])
	}
	if m.updateZones(counts, now) {
		for _, n := range nodes {
			v.actions = append(v.actions, node.UpdateTaints(n, nil, []corev1.Taint{notReady, unreachable}, now)...)
		}
	}
	slices.SortFunc(v.actions, func(a, b controller.Action) int { return cmp.Compare(a.String(), b.String()) })
	slices.Sort(v.unreadyPods)
	return v
}

// podsMarked notes that the pods of a node have been marked as not ready.
func (m *monitor) podsMarked(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.nodes[name]; s != nil {
		s.markPods = false
	}
}

func isReady(n *corev1.Node) bool {
	ready := node.Ready(n)
	return ready != nil && ready.Status == corev1.ConditionTrue
}
