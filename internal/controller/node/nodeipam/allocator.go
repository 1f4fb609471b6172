package nodeipam

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/controller"
)

// allocator holds which node has, or is about to get, which pod CIDRs.
type allocator struct {
	get  func(name string) *corev1.Node
	list func() []*corev1.Node
	log  *slog.Logger

	mu       sync.Mutex
	families []*ranges // one per cluster CIDR
	allRead  bool      // the CIDRs of all nodes have been read
	held     map[string]*holding
	waiting  map[string]*waiter // nodes for which no CIDR was free
}

// holding holds the CIDRs of a node, or those it is about to get: one per family.
type holding struct {
	uid    types.UID
	ranges []netip.Prefix
}

// waiter is a node for which no CIDR was free.
type waiter struct {
	uid      types.UID
	requeued bool // it is queued, to get the CIDR of a deleted node
}

// readAll reads the CIDRs of all nodes, before any is allocated.
func (a *allocator) readAll() {
	if a.allRead {
		return
	}
	for _, n := range a.list() {
		if len(n.Spec.PodCIDRs) > 0 {
			a.hold(n)
		}
	}
	a.allRead = true
}

// hold marks a node's CIDRs as taken. A CIDR outside of the cluster's is only logged: this loop cannot allocate it, and does not undo what others assigned.
func (a *allocator) hold(n *corev1.Node) {
	var has []netip.Prefix
	var invalid []error
	for i, cidr := range n.Spec.PodCIDRs {
		p, err := parse(cidr)
		switch {
		case err != nil:
			invalid = append(invalid, fmt.Errorf("failed to parse node %s, CIDR %s", n.Name, cidr))
		case i >= len(a.families):
			invalid = append(invalid, fmt.Errorf("node:%s has an allocated cidr: %v at index:%v that does not exist in cluster cidrs configuration", n.Name, cidr, i))
		default:
			has = append(has, p)
		}
	}
	if h := a.held[n.Name]; h != nil && h.uid == n.UID && slices.Equal(h.ranges, has) {
		return
	}
	a.release(n.Name)
	for i, p := range has {
		if err := a.families[i].take(p); err != nil {
			invalid = append(invalid, fmt.Errorf("failed to mark cidr[%v] at idx [%v] as occupied for node: %v: %w", p, i, n.Name, err))
		}
	}
	a.held[n.Name] = &holding{n.UID, has}
	if len(invalid) > 0 {
		a.log.Warn("node has a pod CIDR outside of the cluster's", "node", n.Name, "error", errors.Join(invalid...))
	}
}

// reserve allocates CIDRs for a node, or returns those that are reserved for it already.
func (a *allocator) reserve(n *corev1.Node) ([]netip.Prefix, error) {
	if h := a.held[n.Name]; h != nil && h.uid == n.UID && len(h.ranges) == len(a.families) {
		return h.ranges, nil
	}
	a.free(n.Name)
	var found []netip.Prefix
	for i, family := range a.families {
		p, err := family.allocate()
		if err != nil && a.releaseDeleted() {
			p, err = family.allocate()
		}
		if err != nil {
			for i, p := range found {
				a.families[i].free(p)
			}
			return nil, fmt.Errorf("failed to allocate cidr from cluster cidr at idx:%v: %w", i, err)
		}
		found = append(found, p)
	}
	a.held[n.Name] = &holding{n.UID, found}
	delete(a.waiting, n.Name)
	return found, nil
}

// releaseDeleted releases the CIDRs of nodes that were deleted but not reconciled since, and reports whether there were any.
func (a *allocator) releaseDeleted() bool {
	before := len(a.held)
	for name := range a.held {
		if a.get(name) == nil {
			a.release(name)
		}
	}
	return len(a.held) < before
}

// release forgets a node and frees its CIDRs.
func (a *allocator) release(name string) {
	delete(a.waiting, name)
	a.free(name)
}

// free frees a node's CIDRs.
func (a *allocator) free(name string) {
	h := a.held[name]
	if h == nil {
		return
	}
	for i, p := range h.ranges {
		a.families[i].free(p)
	}
	delete(a.held, name)
}

// waitingKey returns a node to requeue when another one is deleted, whose CIDR may be free now. It returns another one each time: if several nodes are
// deleted before it is reconciled, as many get their CIDRs. If it is deleted itself by then, its deletion requeues the next one.
func (a *allocator) waitingKey() []controller.Key {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, w := range a.waiting {
		if !w.requeued {
			w.requeued = true
			return []controller.Key{{Name: name}}
		}
	}
	return nil
}
