package model

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Tracker keeps what is known of Services and their endpoints and says what changed. It is not safe for concurrent use. Objects that it is
// given are kept and not changed.
type Tracker struct {
	node     string
	nodeIPs  []netip.Addr
	zone     string
	services map[types.NamespacedName]*service
	dirty    map[types.NamespacedName]struct{}
	all      bool
	ranges   []netip.Prefix // of cluster IPs, for the next Take
	state    State
	health   map[types.NamespacedName]HealthCheck
}

// service is a Service and what belongs to it. Either may come first.
type service struct {
	object *corev1.Service
	slices map[string]*discoveryv1.EndpointSlice
	ports  []*Port // as of the last Take, sorted by key
}

// HealthCheck is what a load balancer may ask this node about a Service that wants external traffic only where it has endpoints.
type HealthCheck struct {
	Port   uint16
	IPv4   int // endpoints on this node that are ready, by family
	IPv6   int
	Family []Family // that the Service has
}

// NewTracker makes a tracker for a node.
func NewTracker(node string, nodeIPs []netip.Addr) *Tracker {
	return &Tracker{
		node: node, nodeIPs: nodeIPs, all: true,
		services: map[types.NamespacedName]*service{}, dirty: map[types.NamespacedName]struct{}{},
		state: State{Ports: map[Key]*Port{}}, health: map[types.NamespacedName]HealthCheck{},
	}
}

// SetService takes a Service that is new or changed.
func (t *Tracker) SetService(s *corev1.Service) {
	name := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
	t.at(name).object = s
	t.dirty[name] = struct{}{}
}

// DeleteService takes note that a Service is gone.
func (t *Tracker) DeleteService(name types.NamespacedName) {
	if s := t.services[name]; s != nil {
		s.object = nil
		t.dirty[name] = struct{}{}
	}
}

// SetSlice takes an EndpointSlice that is new or changed; before is what it was, if known: its label may have named another Service.
func (t *Tracker) SetSlice(before, now *discoveryv1.EndpointSlice) {
	name, ok := serviceOf(now)
	if before != nil {
		if was, had := serviceOf(before); had && (!ok || was != name) {
			t.DeleteSlice(before)
		}
	}
	if !ok {
		return
	}
	s := t.at(name)
	if s.slices == nil {
		s.slices = map[string]*discoveryv1.EndpointSlice{}
	}
	s.slices[now.Name] = now
	t.dirty[name] = struct{}{}
}

// DeleteSlice takes note that an EndpointSlice is gone.
func (t *Tracker) DeleteSlice(slice *discoveryv1.EndpointSlice) {
	name, ok := serviceOf(slice)
	if s := t.services[name]; ok && s != nil {
		delete(s.slices, slice.Name)
		t.dirty[name] = struct{}{}
	}
}

// SetNode takes this node's labels: its zone decides which endpoints are near.
func (t *Tracker) SetNode(labels map[string]string) {
	if zone := labels[corev1.LabelTopologyZone]; zone != t.zone {
		t.zone = zone
		for name := range t.services {
			t.dirty[name] = struct{}{}
		}
	}
}

// SetServiceCIDRs takes the ranges of cluster IPs.
func (t *Tracker) SetServiceCIDRs(ranges []netip.Prefix) {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, comparePrefix)
	if !slices.Equal(ranges, t.ranges) {
		t.ranges, t.all = ranges, true
	}
}

// Forget has the next Take say that all is unknown, as it is after a Sync that failed.
func (t *Tracker) Forget() { t.all = true }

// Pending reports whether there may be something to Take.
func (t *Tracker) Pending() bool { return t.all || len(t.dirty) > 0 }

// Take returns what is to be served and what changed since the last time. The state is the tracker's, and good until the next Take; the other
// methods leave it alone.
func (t *Tracker) Take() (*State, Changes) {
	changes := Changes{All: t.all}
	for name := range t.dirty {
		changes.Ports = t.refresh(name, changes.Ports)
	}
	clear(t.dirty)
	t.all, t.state.ServiceCIDRs = false, t.ranges
	slices.SortFunc(changes.Ports, func(a, b Change) int { return a.Key.Compare(b.Key) })
	return &t.state, changes
}

// HealthChecks are the health checks to answer, as of the last Take. The map is the tracker's, as the state is.
func (t *Tracker) HealthChecks() map[types.NamespacedName]HealthCheck { return t.health }

func (t *Tracker) refresh(name types.NamespacedName, changes []Change) []Change {
	s := t.services[name]
	was := s.ports
	s.ports = nil
	delete(t.health, name)
	if s.object != nil {
		s.ports = t.ports(s)
		if check, ok := t.healthCheck(s); ok {
			t.health[name] = check
		}
	}
	for _, old := range was {
		if !slices.ContainsFunc(s.ports, func(p *Port) bool { return p.Key == old.Key }) {
			delete(t.state.Ports, old.Key)
			changes = append(changes, Change{Key: old.Key, Old: old})
		}
	}
	for i, p := range s.ports {
		old := t.state.Ports[p.Key]
		if p.Equal(old) {
			s.ports[i] = old
			continue
		}
		t.state.Ports[p.Key] = p
		changes = append(changes, Change{Key: p.Key, Old: old, New: p})
	}
	if s.object == nil && len(s.slices) == 0 {
		delete(t.services, name)
	}
	return changes
}

func (t *Tracker) at(name types.NamespacedName) *service {
	s := t.services[name]
	if s == nil {
		s = &service{}
		t.services[name] = s
	}
	return s
}

func serviceOf(slice *discoveryv1.EndpointSlice) (types.NamespacedName, bool) {
	name := slice.Labels[discoveryv1.LabelServiceName]
	return types.NamespacedName{Namespace: slice.Namespace, Name: name}, name != ""
}

// sorted are the slices of a Service by name, so that the same objects give the same result.
func (s *service) sorted() []*discoveryv1.EndpointSlice {
	return slices.SortedFunc(maps.Values(s.slices), func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
}

func comparePrefix(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}
