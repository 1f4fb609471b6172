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

// allocator knows which node has, or is about to get, which ranges.
type allocator struct {
	get  func(name string) *corev1.Node
	list func() []*corev1.Node
	log  *slog.Logger

	mu       sync.Mutex
	families []*ranges // one per range of the cluster
	read     bool      // whether all nodes have been looked at
	held     map[string]*holding
	waiting  map[string]*waiter // nodes that found nothing free
}

// holding is what a node has, or is to get: one range per family.
type holding struct {
	uid    types.UID
	ranges []netip.Prefix
}

// waiter is a node that found nothing free.
type waiter struct {
	uid   types.UID
	woken bool // it is to be looked at, for what another node had
}

// readAll notes what all nodes have, before anything is given out.
func (a *allocator) readAll() {
	if a.read {
		return
	}
	for _, n := range a.list() {
		if len(n.Spec.PodCIDRs) > 0 {
			a.hold(n)
		}
	}
	a.read = true
}

// hold notes what a node has. A range that is not one of ours cannot be given out twice by us, and that somebody assigned it is not ours to undo.
func (a *allocator) hold(n *corev1.Node) {
	var has []netip.Prefix
	var strange []error
	for i, cidr := range n.Spec.PodCIDRs {
		p, err := parse(cidr)
		switch {
		case err != nil:
			strange = append(strange, fmt.Errorf("failed to parse node %s, CIDR %s", n.Name, cidr))
		case i >= len(a.families):
			strange = append(strange, fmt.Errorf("node:%s has an allocated cidr: %v at index:%v that does not exist in cluster cidrs configuration", n.Name, cidr, i))
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
			strange = append(strange, fmt.Errorf("failed to mark cidr[%v] at idx [%v] as occupied for node: %v: %w", p, i, n.Name, err))
		}
	}
	a.held[n.Name] = &holding{n.UID, has}
	if len(strange) > 0 {
		a.log.Warn("a node has a range of pod addresses that is not the cluster's", "node", n.Name, "error", errors.Join(strange...))
	}
}

// reserve finds ranges for a node, or those that were found before.
func (a *allocator) reserve(n *corev1.Node) ([]netip.Prefix, error) {
	if h := a.held[n.Name]; h != nil && h.uid == n.UID && len(h.ranges) == len(a.families) {
		return h.ranges, nil
	}
	a.giveBack(n.Name)
	var found []netip.Prefix
	for i, family := range a.families {
		p, err := family.allocate()
		if err != nil && a.sweep() {
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

// sweep takes back what nodes had that are gone but have not been looked at since, and says whether there was any.
func (a *allocator) sweep() bool {
	before := len(a.held)
	for name := range a.held {
		if a.get(name) == nil {
			a.release(name)
		}
	}
	return len(a.held) < before
}

// release forgets a node.
func (a *allocator) release(name string) {
	delete(a.waiting, name)
	a.giveBack(name)
}

// giveBack has others get what a node had.
func (a *allocator) giveBack(name string) {
	h := a.held[name]
	if h == nil {
		return
	}
	for i, p := range h.ranges {
		a.families[i].free(p)
	}
	delete(a.held, name)
}

// waitingKey is a node to look at when another one is gone, whose range may be free now. One is enough, but another one each time: should several nodes
// go before it is looked at, as many get what they had. Should it be gone as well by then, its own end has the next one looked at.
func (a *allocator) waitingKey() []controller.Key {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, w := range a.waiting {
		if !w.woken {
			w.woken = true
			return []controller.Key{{Name: name}}
		}
	}
	return nil
}
