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

// startupGrace is how long a new node may take until its status is posted.
const startupGrace = 60 * time.Second

type settings struct {
	period       time.Duration // between passes
	grace        time.Duration // how long a node may be silent
	startupGrace time.Duration // the same for one that has not posted a status yet

	rate          float64 // of nodes tainted NoExecute, per second and zone
	secondaryRate float64 // the same in a large zone much of which is not ready
	large         int     // zones of more nodes are large
	unhealthy     float64 // the share of nodes that are not ready which is much
}

// monitor is what is remembered of nodes from one pass to the next. It has no clock and does nothing itself: a pass is observe, then judge, told how
// the writes that observe asked for went; in between, toTaint says whose turn it is.
type monitor struct {
	settings settings

	mu      sync.Mutex
	nodes   map[string]*seen
	zones   map[string]*zone
	stopped bool // no node is ready, so none is tainted
}

// seen is when a node last gave a sign of life, by the time of this side: clocks of nodes may be wrong.
type seen struct {
	uid       types.UID
	at        time.Time
	posted    bool              // there was a Ready condition
	heartbeat metav1.Time       // of that condition
	renewed   *metav1.MicroTime // of the lease
	mark      bool              // its pods are to be marked as not ready
}

func newMonitor(s settings) *monitor {
	return &monitor{settings: s, nodes: map[string]*seen{}, zones: map[string]*zone{}}
}

// observe notes signs of life. It returns what people should be told of nodes that came and went, and the nodes that are silent, as their
// status should say.
func (m *monitor) observe(nodes []*corev1.Node, lease func(name string) *coordinationv1.Lease, now time.Time) (events []controller.Action, silent []*corev1.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	there := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		there[n.Name] = true
		s := m.nodes[n.Name]
		if s != nil && s.uid != n.UID { // another of that name
			events = append(events, removed(n.Name, s.uid))
			s = nil
		}
		if s == nil {
			s = &seen{uid: n.UID, at: n.CreationTimestamp.Time}
			m.nodes[n.Name] = s
			events = append(events, node.Event(n.Name, n.UID, "RegisteredNode", "Registered Node "+n.Name+" in Controller"))
			// If it was this loop that found it silent, it may have ended before it told the pods.
			ready := node.Ready(n)
			s.mark = ready != nil && ready.Status == corev1.ConditionUnknown
		}
		if m.overdue(s, n, lease(n.Name), now) {
			if ready := node.Ready(n); ready == nil || ready.Status != corev1.ConditionUnknown {
				silent = append(silent, silenced(n, now))
			}
		}
	}
	for name, s := range m.nodes {
		if !there[name] {
			events = append(events, removed(name, s.uid))
			delete(m.nodes, name)
		}
	}
	return events, silent
}

func removed(name string, uid types.UID) controller.Action {
	return node.Event(name, uid, "RemovingNode", "Removing Node "+name+" from Controller")
}

// overdue notes a node's signs of life and says whether they have been missing for too long. A node that never posted a status is fine as
// long as it renews its lease.
func (m *monitor) overdue(s *seen, n *corev1.Node, lease *coordinationv1.Lease, now time.Time) bool {
	grace := m.settings.startupGrace
	ready := node.Ready(n)
	if ready != nil {
		grace = m.settings.grace
		if !s.posted || !s.heartbeat.Equal(&ready.LastHeartbeatTime) {
			s.at = now
		}
		s.heartbeat = ready.LastHeartbeatTime
	}
	s.posted = ready != nil
	if lease != nil && lease.Spec.RenewTime != nil && (s.renewed == nil || s.renewed.Before(lease.Spec.RenewTime)) {
		s.renewed = lease.Spec.RenewTime
		s.at = now
	}
	return now.After(s.at.Add(grace))
}

// renewed is when a node last renewed its lease, as far as is known.
func (m *monitor) renewed(name string) *metav1.MicroTime {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.nodes[name]; s != nil && s.renewed != nil {
		return s.renewed
	}
	return &metav1.MicroTime{}
}

// verdict is what a pass decides.
type verdict struct {
	actions []controller.Action
	unready []string // nodes whose pods are to be marked as not ready
}

// judge decides about all nodes. silenced are those whose status has just been written, failed those whose status could not be: of them nothing is
// said this time.
func (m *monitor) judge(nodes []*corev1.Node, silenced map[string]*corev1.Node, failed map[string]bool, now time.Time) verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	var v verdict
	counts := map[string]*tally{}
	waits := map[string][]string{}
	for _, n := range nodes {
		key := topology.GetZoneKey(n)
		t := m.tallyOf(key, counts)
		if failed[n.Name] {
			continue
		}
		s, wasReady := m.nodes[n.Name], isReady(n)
		if written := silenced[n.Name]; written != nil {
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
			s.mark = false
			continue
		case wasReady: // it was this loop that found it silent
			v.actions = append(v.actions, node.StatusEvent(n, "NodeNotReady"))
			s.mark = true
		}
		if s.mark {
			v.unready = append(v.unready, n.Name)
		}
		if !node.HasTaint(n, notReady.Key, notReady.Effect) && !node.HasTaint(n, unreachable.Key, unreachable.Effect) {
			waits[key] = append(waits[key], n.Name)
		}
	}
	for key, z := range m.zones {
		z.wait(waits[key])
	}
	if m.disrupted(counts, now) {
		for _, n := range nodes {
			v.actions = append(v.actions, node.Retaint(n, nil, []corev1.Taint{notReady, unreachable}, now)...)
		}
	}
	slices.SortFunc(v.actions, func(a, b controller.Action) int { return cmp.Compare(a.String(), b.String()) })
	slices.Sort(v.unready)
	return v
}

// marked notes that the pods of a node have been marked as not ready.
func (m *monitor) marked(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.nodes[name]; s != nil {
		s.mark = false
	}
}

func isReady(n *corev1.Node) bool {
	ready := node.Ready(n)
	return ready != nil && ready.Status == corev1.ConditionTrue
}
