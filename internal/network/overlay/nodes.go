package overlay

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The annotations that a node publishes in its Node.
const (
	// BackendAnnotation holds the node's backend.
	BackendAnnotation = "overlay.skiff/backend"
	// MACAnnotation holds the hardware address of the node's skiff.vx.
	MACAnnotation = "overlay.skiff/mac"
)

// maxListed bounds the pod CIDRs and the addresses that are read of one Node. The API allows one pod CIDR of each family.
const maxListed = 8

// mac is a hardware address.
type mac [6]byte

func (m mac) String() string { return net.HardwareAddr(m[:]).String() }

// macOf returns the hardware address of a node's skiff.vx. It is derived from the node's name, so that it stays the same after a reboot.
func macOf(node string) mac {
	sum := sha256.Sum256([]byte("skiff overlay " + node))
	m := mac(sum[:6])
	m[0] = m[0]&^1 | 2 // unicast, locally administered
	return m
}

// node holds the parts of a Node that the overlay uses.
type node struct {
	name      string
	created   time.Time
	ranges    []netip.Prefix
	invalid   []string // why pod CIDRs of the Node were ignored
	addresses []netip.Addr
	backend   string
	mac       mac
	network   corev1.ConditionStatus // the status of the condition NetworkUnavailable
}

// read returns the parts of a Node that the overlay uses. It never fails: pod CIDRs that cannot be parsed are listed in invalid.
func read(object *corev1.Node) *node {
	n := &node{name: object.Name, created: object.CreationTimestamp.Time, backend: object.Annotations[BackendAnnotation]}
	for _, text := range object.Spec.PodCIDRs[:min(len(object.Spec.PodCIDRs), maxListed)] {
		r, err := netip.ParsePrefix(text)
		switch {
		case err != nil || r.Addr().Is4In6():
			n.invalid = append(n.invalid, fmt.Sprintf("%q is not a range of addresses", text))
		case r != r.Masked():
			n.invalid = append(n.invalid, fmt.Sprintf("%q is not a range of addresses: it would be %s", text, r.Masked()))
		default:
			n.ranges = append(n.ranges, r)
		}
	}
	for _, a := range object.Status.Addresses[:min(len(object.Status.Addresses), maxListed)] {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP && ip.Zone() == "" {
			n.addresses = append(n.addresses, ip.Unmap())
		}
	}
	if m, err := net.ParseMAC(object.Annotations[MACAnnotation]); err == nil && len(m) == len(n.mac) && m[0]&1 == 0 {
		n.mac = mac(m)
	}
	for _, c := range object.Status.Conditions {
		if c.Type == corev1.NodeNetworkUnavailable {
			n.network = c.Status
		}
	}
	return n
}

// address returns the node's first address of a family.
func (n *node) address(v6 bool) (netip.Addr, bool) { return ofFamily(n.addresses, v6) }

func ofFamily(list []netip.Addr, v6 bool) (netip.Addr, bool) {
	i := slices.IndexFunc(list, func(a netip.Addr) bool { return a.Is6() == v6 })
	if i < 0 {
		return netip.Addr{}, false
	}
	return list[i], true
}

func (n *node) equal(other *node) bool {
	return n.name == other.name && n.created.Equal(other.created) && n.backend == other.backend && n.mac == other.mac && n.network == other.network &&
		slices.Equal(n.ranges, other.ranges) && slices.Equal(n.invalid, other.invalid) && slices.Equal(n.addresses, other.addresses)
}

// before compares nodes by creation time, then by name. All nodes agree on this order.
func (n *node) before(other *node) int {
	return cmp.Or(n.created.Compare(other.created), cmp.Compare(n.name, other.name))
}

// nodes holds the observed Nodes. changed receives an element when one of them changed.
type nodes struct {
	changed chan struct{}

	mu     sync.Mutex
	byName map[string]*node
}

func newNodes() *nodes { return &nodes{changed: make(chan struct{}, 1), byName: map[string]*node{}} }

// set stores the current version of a Node. It notifies only of changes that the overlay uses: most updates of Nodes are heartbeats.
func (n *nodes) set(object *corev1.Node) {
	now := read(object)
	n.mu.Lock()
	old := n.byName[now.name]
	n.byName[now.name] = now
	n.mu.Unlock()
	if old == nil || !old.equal(now) {
		n.notify()
	}
}

func (n *nodes) remove(name string) {
	n.mu.Lock()
	delete(n.byName, name)
	n.mu.Unlock()
	n.notify()
}

func (n *nodes) notify() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// all returns the node with a name, nil if there is none, and all others ordered by creation.
func (n *nodes) all(name string) (self *node, others []*node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	others = make([]*node, 0, len(n.byName))
	for _, each := range n.byName {
		if each.name == name {
			self = each
		} else {
			others = append(others, each)
		}
	}
	slices.SortFunc(others, (*node).before)
	return self, others
}
