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

// Tracker holds the observed Services and EndpointSlices and computes what changed. It is not safe for concurrent use. It keeps the objects
// that it is given and does not change them.
type Tracker struct {
	node     string
	nodeIPs  []netip.Addr
	zone     string
	services map[types.NamespacedName]*service
	dirty    map[types.NamespacedName]struct{}
	all      bool
	ranges   []netip.Prefix // the ranges of cluster IPs, for the next Take
	state    State
	health   map[types.NamespacedName]HealthCheck
}

// service is a Service with its EndpointSlices. Either may be observed first.
type service struct {
	object *corev1.Service
	slices map[string]*discoveryv1.EndpointSlice
	ports  []*Port // as of the last Take, sorted by key
}

// HealthCheck is the health check of a Service with external traffic policy Local: load balancers ask whether this node has endpoints.
type HealthCheck struct {
	Port   uint16   // the health check node port
	IPv4   int      // the number of ready IPv4 endpoints on this node
	IPv6   int      // the number of ready IPv6 endpoints on this node
	Family []Family // the families of the Service
}

// NewTracker returns a Tracker for a node.
func NewTracker(node string, nodeIPs []netip.Addr) *Tracker {
	return &Tracker{
		node: node, nodeIPs: nodeIPs, all: true,
		services: map[types.NamespacedName]*service{}, dirty: map[types.NamespacedName]struct{}{},
		state: State{Ports: map[Key]*Port{}}, health: map[types.NamespacedName]HealthCheck{},
	}
}

// SetService stores a Service that was added or updated.
func (t *Tracker) SetService(s *corev1.Service) {
	name := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
	t.at(name).object = s
	t.dirty[name] = struct{}{}
}

// DeleteService removes a Service that was deleted.
func (t *Tracker) DeleteService(name types.NamespacedName) {
	if s := t.services[name]; s != nil {
		s.object = nil
		t.dirty[name] = struct{}{}
	}
}

// SetSlice stores an EndpointSlice that was added or updated. before is its last version, or nil: its label may have named another Service.
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

// DeleteSlice removes an EndpointSlice that was deleted.
func (t *Tracker) DeleteSlice(slice *discoveryv1.EndpointSlice) {
	name, ok := serviceOf(slice)
	if s := t.services[name]; ok && s != nil {
		delete(s.slices, slice.Name)
		t.dirty[name] = struct{}{}
	}
}

// SetNode sets this node's labels: topology hints depend on its zone.
func (t *Tracker) SetNode(labels map[string]string) {
	if zone := labels[corev1.LabelTopologyZone]; zone != t.zone {
		t.zone = zone
		for name := range t.services {
			t.dirty[name] = struct{}{}
		}
	}
}

// SetServiceCIDRs sets the ranges of cluster IPs.
func (t *Tracker) SetServiceCIDRs(ranges []netip.Prefix) {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, comparePrefix)
	if !slices.Equal(ranges, t.ranges) {
		t.ranges, t.all = ranges, true
	}
}

// ResyncAll makes the next Take return Changes with All set, as is needed after a Sync that failed.
func (t *Tracker) ResyncAll() { t.all = true }

// Pending reports whether there may be changes to Take.
func (t *Tracker) Pending() bool { return t.all || len(t.dirty) > 0 }

// Take returns the State to serve and what changed since the last Take. The State belongs to the tracker and is valid until the next Take; the
// other methods do not change it.
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

// HealthChecks returns the health checks to answer, as of the last Take. The map belongs to the tracker, like the State.
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

// sorted returns the slices of a Service by name, so that the result does not depend on map order.
func (s *service) sorted() []*discoveryv1.EndpointSlice {
	return slices.SortedFunc(maps.Values(s.slices), func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
}

func comparePrefix(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}
