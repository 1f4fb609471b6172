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

// What a node says of itself, in annotations of its Node.
const (
	BackendAnnotation = "overlay.skiff/backend"
	MACAnnotation     = "overlay.skiff/mac" // of its skiff.vx
)

// maxRanges is how many ranges and addresses of one node are looked at. The API allows one of each family.
const maxRanges = 8

// mac is a hardware address.
type mac [6]byte

func (m mac) String() string { return net.HardwareAddr(m[:]).String() }

// macOf is the hardware address of a node's skiff.vx: always the same, so that others need not relearn it after a reboot.
func macOf(node string) mac {
	sum := sha256.Sum256([]byte("skiff overlay " + node))
	m := mac(sum[:6])
	m[0] = m[0]&^1 | 2 // one station's, and not a vendor's
	return m
}

// node is what matters here of a Node.
type node struct {
	name      string
	created   time.Time
	ranges    []netip.Prefix
	bad       []string // ranges that are none, and why
	addresses []netip.Addr
	backend   string
	mac       mac
	network   corev1.ConditionStatus // of the condition NetworkUnavailable
}

// read takes from a Node what matters. It never fails: what cannot be understood is kept as such.
func read(object *corev1.Node) *node {
	n := &node{name: object.Name, created: object.CreationTimestamp.Time, backend: object.Annotations[BackendAnnotation]}
	for _, text := range object.Spec.PodCIDRs[:min(len(object.Spec.PodCIDRs), maxRanges)] {
		r, err := netip.ParsePrefix(text)
		switch {
		case err != nil || r.Addr().Is4In6():
			n.bad = append(n.bad, fmt.Sprintf("%q is not a range of addresses", text))
		case r != r.Masked():
			n.bad = append(n.bad, fmt.Sprintf("%q is not a range of addresses: it would be %s", text, r.Masked()))
		default:
			n.ranges = append(n.ranges, r)
		}
	}
	for _, a := range object.Status.Addresses[:min(len(object.Status.Addresses), maxRanges)] {
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

// address is the node's first address of a family.
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
		slices.Equal(n.ranges, other.ranges) && slices.Equal(n.bad, other.bad) && slices.Equal(n.addresses, other.addresses)
}

// before orders nodes by who came first. All nodes agree on it.
func (n *node) before(other *node) int {
	return cmp.Or(n.created.Compare(other.created), cmp.Compare(n.name, other.name))
}

// nodes are those that there are. Informers tell it; changed has something in it when there is news.
type nodes struct {
	changed chan struct{}

	mu     sync.Mutex
	byName map[string]*node
}

func newNodes() *nodes { return &nodes{changed: make(chan struct{}, 1), byName: map[string]*node{}} }

// set notes how a Node is now. Most changes of Nodes, such as heartbeats, are none here.
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

// all are the node of a name, nil if there is none, and the others, the first to come first.
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
