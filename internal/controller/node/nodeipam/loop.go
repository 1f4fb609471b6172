package nodeipam

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	netutils "k8s.io/utils/net"

	"skiff/internal/controller"
	"skiff/internal/controller/node"
)

const (
	// Name is the loop's name.
	Name = "node-ipam-controller"

	workers         = 30 // as upstream: writes wait for an API server that may be far away
	defaultMaskSize = 24 // of a node's IPv4 CIDR
	maskSizeIPv6    = 64 // of a node's IPv6 CIDR

	// retryAfter is when a node that waits for a CIDR is requeued if no node is deleted.
	retryAfter = 5 * time.Minute
)

// New returns the loop. It does nothing unless AllocateNodeCIDRs is set. The configuration should have passed Check.
func New(deps controller.Deps) controller.Loop {
	loop := controller.Loop{Name: Name, ServiceAccount: node.Account, EventSource: "cidrAllocator", QueueName: "cidrallocator_node", Workers: workers}
	if !deps.Config.AllocateNodeCIDRs {
		return loop
	}
	nodes := deps.Informers.Core().V1().Nodes()
	a, err := newAllocator(deps.Config)
	if err != nil {
		loop.Watch = []controller.Watch{{Informer: nodes.Informer(), Type: &corev1.Node{}}}
		loop.Reconcile = func(controller.Key, time.Time) controller.Decision { return controller.Decision{Err: err} }
		return loop
	}
	if a.log = deps.Log; a.log == nil {
		a.log = slog.Default()
	}
	lister := nodes.Lister()
	a.get = func(name string) *corev1.Node {
		n, err := lister.Get(name)
		if err != nil {
			return nil
		}
		return n
	}
	a.list = func() []*corev1.Node {
		all, err := lister.List(labels.Everything())
		if err != nil {
			return nil // a lister over a cache does not fail
		}
		return all
	}
	loop.Watch = []controller.Watch{{Informer: nodes.Informer(), Type: &corev1.Node{}, Keys: func(before, after metav1.Object) []controller.Key {
		if after == nil { // other nodes may wait for its CIDR
			return append(a.waitingKey(), controller.KeyOf(before))
		}
		return []controller.Key{controller.KeyOf(after)}
	}}}
	loop.Reconcile = func(key controller.Key, _ time.Time) controller.Decision { return a.reconcile(key.Name) }
	return loop
}

// Check validates a configuration.
func Check(c controller.Config) error {
	if !c.AllocateNodeCIDRs {
		return nil
	}
	_, err := newAllocator(c)
	return err
}

func newAllocator(c controller.Config) (*allocator, error) {
	if len(c.ClusterCIDRs) == 0 {
		return nil, errors.New("Controller: Must specify --cluster-cidr if --allocate-node-cidrs is set") //nolint:staticcheck // upstream's wording
	}
	a := &allocator{held: map[string]*holding{}, waiting: map[string]*waiter{}}
	for _, s := range c.ClusterCIDRs {
		cluster, err := parse(s)
		if err != nil {
			return nil, fmt.Errorf("--cluster-cidr: %w", err)
		}
		mask := maskSizeIPv6
		if cluster.Addr().Is4() {
			mask = c.NodeCIDRMaskSizeIPv4
			if mask == 0 {
				mask = defaultMaskSize
			}
		}
		r, err := newRanges(cluster, mask)
		if err != nil {
			return nil, err
		}
		a.families = append(a.families, r)
	}
	if len(a.families) > 2 || len(a.families) == 2 && a.families[0].cluster.Addr().Is4() == a.families[1].cluster.Addr().Is4() {
		return nil, fmt.Errorf("--cluster-cidr: expected one range, or one of each IP family, got %v", c.ClusterCIDRs)
	}
	for _, s := range c.ServiceCIDRs {
		services, err := parse(s)
		if err != nil {
			return nil, fmt.Errorf("--service-cluster-ip-range: %w", err)
		}
		for _, r := range a.families {
			if services.Overlaps(r.cluster) { // take fails only if they do not overlap
				_ = r.take(services)
			}
		}
	}
	return a, nil
}

// parse parses a CIDR as Kubernetes does, which accepts leading zeros, unlike netip.
func parse(s string) (netip.Prefix, error) {
	_, network, err := netutils.ParseCIDRSloppy(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	address, _ := netip.AddrFromSlice(network.IP)
	bits, _ := network.Mask.Size()
	return netip.PrefixFrom(address.Unmap(), bits), nil
}

// reconcile allocates CIDRs to a node, or notes those that it has.
func (a *allocator) reconcile(name string) controller.Decision {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.readAll()
	n := a.get(name)
	switch {
	case n == nil:
		a.release(name)
		return controller.Nothing
	case n.DeletionTimestamp != nil:
		return controller.Nothing
	case len(n.Spec.PodCIDRs) > 0:
		a.hold(n)
		return controller.Nothing
	}
	assigned, err := a.reserve(n)
	if err != nil {
		return a.wait(n, err)
	}
	return controller.Decision{
		Actions: []controller.Action{controller.Patch(n, "", types.StrategicMergePatchType, assignmentPatch(n, assigned))},
		Then: func(err error) controller.Decision {
			if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // the node was deleted or replaced: its events follow
				return controller.Nothing
			}
			// Whether it was written may be unknown, so the reservation stays, for this node.
			return controller.Decision{Actions: []controller.Action{node.StatusEvent(n, "CIDRAssignmentFailed")}, Err: err}
		},
	}
}

// wait queues a node until a CIDR is freed, which the deletion of another node does. An Event says once per node that it waits; the log says once
// that nodes have to wait at all.
func (a *allocator) wait(n *corev1.Node, cause error) controller.Decision {
	if len(a.waiting) == 0 {
		a.log.Warn("no pod CIDR is free for new nodes: use a wider --cluster-cidr or a larger --node-cidr-mask-size-ipv4, or delete nodes", "node", n.Name, "error", cause)
	}
	d := controller.Decision{RequeueAfter: retryAfter}
	if w := a.waiting[n.Name]; w != nil && w.uid == n.UID {
		w.requeued = false
	} else {
		a.waiting[n.Name] = &waiter{uid: n.UID}
		d.Actions = []controller.Action{node.StatusEvent(n, "CIDRNotAvailable")}
	}
	return d
}

// assignmentPatch returns the patch that sets a node's pod CIDRs. It names the uid, lest another node of that name gets them.
func assignmentPatch(n *corev1.Node, assigned []netip.Prefix) []byte {
	var cidrs []string
	for _, p := range assigned {
		cidrs = append(cidrs, p.String())
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": n.UID},
		"spec":     map[string]any{"podCIDR": cidrs[0], "podCIDRs": cidrs},
	})
	if err != nil {
		panic(fmt.Sprintf("failed to encode pod CIDR patch: %v", err))
	}
	return patch
}
