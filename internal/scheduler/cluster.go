package scheduler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/scheduling"
)

// cluster holds the nodes and the pods on them: what the informers have observed, and the pods that this scheduler has put on nodes and the informers
// have not observed there yet (assumed). Snapshots are taken of it, as of upstream's cache.
type cluster struct {
	mu         sync.Mutex
	nodes      map[string]*nodeState
	pods       map[types.UID]*placedPod
	namespaces map[string]labels.Set

	stale        map[types.UID]struct{} // pods of which nodes hold an older version
	refresh      *time.Timer            // runs while there are stale pods
	changed      map[string]struct{}    // nodes that differ from the last snapshot
	reordered    bool                   // nodes were added, deleted, or changed their labels
	newNamespace bool
	last         *scheduling.Snapshot
	order        *nodeOrder
}

// nodeOrder maps the nodes of a snapshot to their positions and back. It never changes.
type nodeOrder struct {
	names    []string
	position map[string]int32
}

func newNodeOrder(nodes []*scheduling.Node) *nodeOrder {
	o := &nodeOrder{make([]string, len(nodes)), make(map[string]int32, len(nodes))}
	for i, n := range nodes {
		o.names[i] = n.Name
		o.position[n.Name] = int32(i)
	}
	return o
}

// nodeState is a node, or pods on a node that has not been observed.
type nodeState struct {
	node   *scheduling.Node              // nil if it has not been observed
	orphan map[types.UID]*scheduling.Pod // its pods while it has not been observed
}

// placedPod is a pod on a node.
type placedPod struct {
	*scheduling.Pod
	assumed bool
	bound   time.Time // when the API accepted the binding of an assumed pod; zero if it has not yet
}

func newCluster(workloads scheduling.Workloads) *cluster {
	return &cluster{nodes: map[string]*nodeState{}, pods: map[types.UID]*placedPod{}, namespaces: map[string]labels.Set{},
		stale: map[types.UID]struct{}{}, changed: map[string]struct{}{}, last: scheduling.NewSnapshot(workloads), order: newNodeOrder(nil)}
}

// snapshot returns the cluster as it is now, and the order of its nodes.
func (c *cluster) snapshot() (*scheduling.Snapshot, *nodeOrder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.changed) > 0 {
		put := make([]*scheduling.Node, 0, len(c.changed))
		var removed []string
		for _, name := range slices.Sorted(maps.Keys(c.changed)) {
			if state := c.nodes[name]; state != nil && state.node != nil {
				put = append(put, state.node)
			} else {
				removed = append(removed, name)
			}
		}
		c.last = c.last.Update(put, removed)
		clear(c.changed)
	}
	if c.newNamespace {
		c.last = c.last.WithNamespaces(maps.Clone(c.namespaces))
		c.newNamespace = false
	}
	if c.reordered {
		c.order = newNodeOrder(c.last.Nodes())
		c.reordered = false
	}
	return c.last, c.order
}

// putNode adds or updates a node.
func (c *cluster) putNode(node *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.state(node.Name)
	if state.node == nil {
		pods := slices.SortedFunc(maps.Values(state.orphan), compareNames)
		state.node, state.orphan = scheduling.NewNode(node, pods...), nil
		c.reordered = true
	} else {
		old := state.node.Node
		if sameForScheduling(old, node) {
			return // only a heartbeat: all cached results about it still hold
		}
		c.reordered = c.reordered || !maps.Equal(old.Labels, node.Labels)
		state.node = state.node.WithNode(node)
	}
	c.changed[node.Name] = struct{}{}
}

// sameForScheduling reports whether two versions of a node are the same to the scheduler.
func sameForScheduling(old, node *corev1.Node) bool {
	return scheduling.NodeUpdate(old, node) == 0 && old.Spec.Unschedulable == node.Spec.Unschedulable && equality.Semantic.DeepEqual(old.Status.Images, node.Status.Images)
}

// hasNode reports whether it holds a node in this version, an equivalent one, or a later one.
func (c *cluster) hasNode(node *corev1.Node) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.nodes[node.Name]
	if state == nil || state.node == nil {
		return false
	}
	known, err := strconv.ParseUint(state.node.ResourceVersion, 10, 64)
	wanted, wrong := strconv.ParseUint(node.ResourceVersion, 10, 64)
	return sameForScheduling(state.node.Node, node) || err == nil && wrong == nil && known >= wanted
}

// removeNode removes a node. Its pods stay until they are deleted themselves.
func (c *cluster) removeNode(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.nodes[name]
	if state == nil || state.node == nil {
		return
	}
	state.orphan = make(map[types.UID]*scheduling.Pod, len(state.node.Pods))
	for _, p := range state.node.Pods {
		state.orphan[p.UID] = p
	}
	state.node = nil
	c.changed[name] = struct{}{}
	c.reordered = true
	c.dropIfEmpty(name)
}

// putNamespace sets a namespace's labels.
func (c *cluster) putNamespace(name string, l labels.Set) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before, ok := c.namespaces[name]; !ok || !maps.Equal(before, l) {
		c.namespaces[name] = l
		c.newNamespace = true
	}
}

func (c *cluster) removeNamespace(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.namespaces, name)
	c.newNamespace = true
}

// assume puts a pod on the node that was chosen for it, before the API knows.
func (c *cluster) assume(pod *scheduling.Pod) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pods[pod.UID] != nil {
		return fmt.Errorf("pod %v(%v/%v) is in the cache, so can't be assumed", pod.UID, pod.Namespace, pod.Name)
	}
	c.place(pod, true)
	return nil
}

// confirmBinding notes that the API accepted the binding of an assumed pod.
func (c *cluster) confirmBinding(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.pods[uid]; p != nil && p.assumed {
		p.bound = time.Now()
	}
}

// forget removes an assumed pod from its node, and reports whether there was one.
func (c *cluster) forget(uid types.UID) (*scheduling.Pod, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pods[uid]
	if p == nil || !p.assumed {
		return nil, false
	}
	c.displace(p)
	return p.Pod, true
}

// isAssumed reports whether the pod is assumed.
func (c *cluster) isAssumed(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pods[uid]
	return p != nil && p.assumed
}

// pod returns a pod on a node as last observed; nil if it is on none.
func (c *cluster) pod(uid types.UID) *scheduling.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.pods[uid]; p != nil {
		return p.Pod
	}
	return nil
}

// putPod adds or updates a pod on a node, and returns what was known of it before, nil if it is new or was assumed.
func (c *cluster) putPod(pod *scheduling.Pod) *scheduling.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.pods[pod.UID]
	if old == nil {
		c.place(pod, false)
		return nil
	}
	known := old.Pod
	if old.assumed {
		known = nil
	}
	if old.Spec.NodeName == pod.Spec.NodeName && sameForOthers(old.Pod, pod) {
		// The node object stays the same for now, and with it all cached results about it.
		c.pods[pod.UID] = &placedPod{Pod: pod}
		c.stale[pod.UID] = struct{}{}
		if c.refresh == nil {
			c.refresh = time.AfterFunc(refreshPeriod, c.refreshSome)
		}
		return known
	}
	c.displace(old)
	c.place(pod, false)
	return known
}

const (
	// Nodes get new versions of pods in which nothing relevant changed only from time to time, a bounded number at a time: it makes new node objects.
	refreshPeriod = 500 * time.Millisecond
	freshenPods   = 500
)

// refreshSome gives nodes the current versions of stale pods, so that the old ones can be freed.
func (c *cluster) refreshSome() {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := freshenPods
	for uid := range c.stale {
		if left == 0 {
			break
		}
		left--
		delete(c.stale, uid)
		if p := c.pods[uid]; p != nil {
			if state := c.nodes[p.Spec.NodeName]; state.node != nil {
				state.node = state.node.Without(uid).With(p.Pod)
				c.changed[p.Spec.NodeName] = struct{}{}
			} else {
				state.orphan[uid] = p.Pod
			}
		}
	}
	c.refresh = nil
	if len(c.stale) > 0 {
		c.refresh = time.AfterFunc(refreshPeriod, c.refreshSome)
	}
}

// close stops the refresh timer.
func (c *cluster) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.stale)
	if c.refresh != nil {
		c.refresh.Stop()
	}
}

// removePod removes a deleted pod.
func (c *cluster) removePod(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.pods[uid]; p != nil {
		c.displace(p)
	}
}

// unconfirmed returns assumed pods whose binding was accepted before a time, and which the informers have not observed on their node since.
func (c *cluster) unconfirmed(before time.Time) (pods []*scheduling.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pods {
		if p.assumed && !p.bound.IsZero() && p.bound.Before(before) {
			pods = append(pods, p.Pod)
		}
	}
	return pods
}

func (c *cluster) state(node string) *nodeState {
	state := c.nodes[node]
	if state == nil {
		state = &nodeState{orphan: map[types.UID]*scheduling.Pod{}}
		c.nodes[node] = state
	}
	return state
}

func (c *cluster) place(pod *scheduling.Pod, assumed bool) {
	c.pods[pod.UID] = &placedPod{Pod: pod, assumed: assumed}
	state := c.state(pod.Spec.NodeName)
	if state.node == nil {
		state.orphan[pod.UID] = pod
		return
	}
	state.node = state.node.With(pod)
	c.changed[pod.Spec.NodeName] = struct{}{}
}

func (c *cluster) displace(p *placedPod) {
	delete(c.pods, p.UID)
	delete(c.stale, p.UID)
	name := p.Spec.NodeName
	state := c.nodes[name]
	if state == nil {
		return
	}
	if state.node == nil {
		delete(state.orphan, p.UID)
		c.dropIfEmpty(name)
		return
	}
	state.node = state.node.Without(p.UID)
	c.changed[name] = struct{}{}
}

// dropIfEmpty removes a node that was deleted and has no pods.
func (c *cluster) dropIfEmpty(name string) {
	if state := c.nodes[name]; state.node == nil && len(state.orphan) == 0 {
		delete(c.nodes, name)
	}
}

// sameForOthers reports whether a change of a pod on a node makes no difference to other pods: same labels, same requests, and both or neither are
// terminating. What else can change about such a pod is its status.
func sameForOthers(a, b *scheduling.Pod) bool {
	return maps.Equal(a.Labels, b.Labels) && a.Priority == b.Priority && a.NonZero == b.NonZero && sameResources(&a.Requests, &b.Requests) &&
		(a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) && slices.Equal(a.HostPorts, b.HostPorts)
}

func sameResources(a, b *scheduling.Resources) bool {
	return a.MilliCPU == b.MilliCPU && a.Memory == b.Memory && a.EphemeralStorage == b.EphemeralStorage && slices.Equal(a.Scalars, b.Scalars)
}

func compareNames(a, b *scheduling.Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
