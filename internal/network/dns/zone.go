package dns

import (
	"hash/maphash"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// zone is what the cluster's names are answered from. Informers change it, queries read it, and what queries pack stays in it until an object
// it was made from changes.
type zone struct {
	domain []byte // encoded, in lower case
	labels int    // of the domain
	ttl    uint32
	own    []netip.Addr // where this server is found if there is no Service for it

	synced  atomic.Bool
	changed atomic.Int64 // when, in seconds since 1970: the zone's serial number

	// mu is held for reading while an answer is found and packed, for writing while objects change: no answer is kept that is older than
	// what the zone knows.
	mu         sync.RWMutex
	entries    map[string]*entry // by the encoded labels of service and namespace
	namespaces map[string]struct{}
	clusterIPs map[netip.Addr][]*entry
	// endpoints has an entry once for each time that a slice of the Service lists the address.
	endpoints map[netip.Addr][]*entry

	seed   maphash.Seed
	packed [packedShards]packedShard
}

// entry is what there is of one Service.
type entry struct {
	namespace, name string
	service         *corev1.Service // nil if there are only slices
	slices          []*discoveryv1.EndpointSlice

	mu    sync.Mutex
	names map[string]struct{} // packed ones, to be forgotten when something changes
	// hosts are the endpoints by their names within the Service, made when one is first asked for.
	hosts map[string][]target
}

const (
	packedShards = 64
	// maxPacked is how many bytes of packed answers a shard keeps. What is more is packed again when it is asked for.
	maxPacked = 256 << 10
)

// packedShard is a part of the packed answers, by name.
type packedShard struct {
	mu    sync.RWMutex
	names map[string]*packedName
	bytes int
	_     [64]byte // shards are used by different processors
}

func newZone(domain []byte, ttl uint32, own []netip.Addr) *zone {
	z := &zone{domain: domain, ttl: ttl, own: own, entries: map[string]*entry{}, namespaces: map[string]struct{}{},
		clusterIPs: map[netip.Addr][]*entry{}, endpoints: map[netip.Addr][]*entry{}, seed: maphash.MakeSeed()}
	for at := 0; domain[at] != 0; at += 1 + int(domain[at]) {
		z.labels++
	}
	for i := range z.packed {
		z.packed[i].names = map[string]*packedName{}
	}
	z.changed.Store(time.Now().Unix())
	return z
}

// follow has informers keep the zone up to date, and returns what says when it is complete.
func (z *zone) follow(f informers.SharedInformerFactory) ([]cache.DoneChecker, error) {
	services, err := f.Core().V1().Services().Informer().AddEventHandler(changes(z.serviceChanged))
	if err != nil {
		return nil, err
	}
	slices, err := f.Discovery().V1().EndpointSlices().Informer().AddEventHandler(changes(z.sliceChanged))
	if err != nil {
		return nil, err
	}
	namespaces, err := f.Core().V1().Namespaces().Informer().AddEventHandler(changes(z.namespaceChanged))
	if err != nil {
		return nil, err
	}
	return []cache.DoneChecker{services.HasSyncedChecker(), slices.HasSyncedChecker(), namespaces.HasSyncedChecker()}, nil
}

// changes calls a function with an object as it was and as it is; either may be nil.
func changes[T any](changed func(before, after *T)) cache.ResourceEventHandler {
	of := func(obj any) *T {
		if lost, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = lost.Obj
		}
		t, _ := obj.(*T)
		return t
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { changed(nil, of(obj)) },
		UpdateFunc: func(before, after any) { changed(of(before), of(after)) },
		DeleteFunc: func(obj any) { changed(of(obj), nil) },
	}
}

func (z *zone) namespaceChanged(before, after *corev1.Namespace) {
	if before != nil && after != nil {
		return
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	if before != nil {
		delete(z.namespaces, before.Name)
	}
	if after != nil {
		z.namespaces[after.Name] = struct{}{}
	}
	z.changed.Store(time.Now().Unix())
}

func (z *zone) serviceChanged(before, after *corev1.Service) {
	z.mu.Lock()
	defer z.mu.Unlock()
	one := after
	if one == nil {
		one = before
	}
	if one == nil {
		return
	}
	e := z.entry(one.Namespace, one.Name)
	if e.service != nil {
		for _, ip := range clusterIPs(e.service) {
			remove(z.clusterIPs, ip, e)
		}
	}
	e.service = after
	if after != nil {
		for _, ip := range clusterIPs(after) {
			z.clusterIPs[ip] = append(z.clusterIPs[ip], e)
		}
	}
	z.touched(e)
}

func (z *zone) sliceChanged(before, after *discoveryv1.EndpointSlice) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if before != nil {
		z.dropSlice(before)
	}
	if after != nil {
		z.addSlice(after)
	}
}

// dropSlice takes a slice away in the form in which it is known, which need not be the one that an informer reports.
func (z *zone) dropSlice(slice *discoveryv1.EndpointSlice) {
	name := slice.Labels[discoveryv1.LabelServiceName]
	e := z.entries[entryKey(slice.Namespace, name)]
	if e == nil {
		return
	}
	i := slices.IndexFunc(e.slices, func(s *discoveryv1.EndpointSlice) bool { return s.Name == slice.Name })
	if i < 0 {
		return
	}
	for addr := range addresses(e.slices[i]) {
		remove(z.endpoints, addr, e)
	}
	e.slices = slices.Delete(e.slices, i, i+1)
	z.touched(e)
}

func (z *zone) addSlice(slice *discoveryv1.EndpointSlice) {
	name := slice.Labels[discoveryv1.LabelServiceName]
	if name == "" || len(name) > maxLabel {
		return // it is nobody's
	}
	e := z.entry(slice.Namespace, name)
	e.slices = append(e.slices, slice)
	for addr := range addresses(slice) {
		z.endpoints[addr] = append(z.endpoints[addr], e)
	}
	z.touched(e)
}

// entry returns the entry of a Service, making it if there is none.
func (z *zone) entry(namespace, name string) *entry {
	key := entryKey(namespace, name)
	e := z.entries[key]
	if e == nil {
		e = &entry{namespace: namespace, name: name}
		z.entries[key] = e
	}
	return e
}

// entryKey is the part of an encoded name that says which Service.
func entryKey(namespace, name string) string {
	return string(appendLabel(appendLabel(make([]byte, 0, len(name)+len(namespace)+2), name), namespace))
}

// touched forgets what was packed of an entry, and the entry if there is nothing left.
func (z *zone) touched(e *entry) {
	e.mu.Lock()
	for name := range e.names {
		z.forget(name)
	}
	e.names, e.hosts = nil, nil
	e.mu.Unlock()
	if e.service == nil && len(e.slices) == 0 {
		delete(z.entries, entryKey(e.namespace, e.name))
	}
	z.changed.Store(time.Now().Unix())
}

func remove(from map[netip.Addr][]*entry, addr netip.Addr, e *entry) {
	if i := slices.Index(from[addr], e); i >= 0 {
		from[addr] = slices.Delete(from[addr], i, i+1)
	}
	if len(from[addr]) == 0 {
		delete(from, addr)
	}
}

// clusterIPs are the addresses of a Service.
func clusterIPs(s *corev1.Service) []netip.Addr {
	texts := s.Spec.ClusterIPs
	if len(texts) == 0 {
		texts = []string{s.Spec.ClusterIP}
	}
	var out []netip.Addr
	for _, text := range texts {
		if addr, err := netip.ParseAddr(text); err == nil {
			out = append(out, addr.Unmap())
		}
	}
	return out
}

func headless(s *corev1.Service) bool {
	if len(s.Spec.ClusterIPs) > 0 {
		return s.Spec.ClusterIPs[0] == corev1.ClusterIPNone
	}
	return s.Spec.ClusterIP == corev1.ClusterIPNone
}

// addresses are the addresses of a slice that are ready, with the name that each has within the Service. Those of pods that are not ready
// are among them if the Service publishes such: whoever writes the slices calls them ready then.
func addresses(slice *discoveryv1.EndpointSlice) func(yield func(netip.Addr, string) bool) {
	return func(yield func(netip.Addr, string) bool) {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			for _, text := range e.Addresses {
				addr, err := netip.ParseAddr(text)
				if err != nil {
					continue // a name, which is not served
				}
				host := ""
				if e.Hostname != nil {
					host = *e.Hostname
				}
				if host == "" || len(host) > maxLabel {
					host = hostOf(text)
				}
				if !yield(addr.Unmap(), host) {
					return
				}
			}
		}
	}
}

// hostOf is the name of an endpoint that has no other: its address.
func hostOf(addr string) string {
	if !strings.Contains(addr, ":") {
		return strings.ReplaceAll(addr, ".", "-")
	}
	host := strings.ReplaceAll(addr, ":", "-")
	if strings.HasSuffix(host, "-") {
		host += "0"
	}
	return strings.ReplaceAll(host, ".", "-")
}

// shard is where the answers about a name are kept.
func (z *zone) shard(name []byte) *packedShard {
	return &z.packed[maphash.Bytes(z.seed, name)%packedShards]
}

// known returns what is packed of a name: the part before the domain.
func (z *zone) known(name []byte) *packedName {
	s := z.shard(name)
	s.mu.RLock()
	p := s.names[string(name)]
	s.mu.RUnlock()
	return p
}

// keep keeps what has been packed of a name.
func (z *zone) keep(e *entry, name []byte, p *packedName) {
	s := z.shard(name)
	s.mu.Lock()
	if other := s.names[string(name)]; other != nil {
		s.bytes -= other.size() // somebody else has packed it too
	}
	if s.bytes += p.size(); s.bytes > maxPacked {
		clear(s.names)
		s.bytes = p.size()
	}
	s.names[string(name)] = p
	s.mu.Unlock()
	e.mu.Lock()
	if e.names == nil {
		e.names = map[string]struct{}{}
	}
	e.names[string(name)] = struct{}{}
	e.mu.Unlock()
}

func (z *zone) forget(name string) {
	s := z.shard([]byte(name))
	s.mu.Lock()
	if p := s.names[name]; p != nil {
		s.bytes -= p.size()
		delete(s.names, name)
	}
	s.mu.Unlock()
}
