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

// zone holds the names of the cluster. Informers change it, queries read it, and the answers that queries pack stay in it until one of the
// objects they were made from changes.
type zone struct {
	domain      []byte // the encoded cluster domain, in lower case
	labels      int    // the number of labels of domain
	ttl         uint32
	serverAddrs []netip.Addr // the addresses of this server if there is no kube-dns Service

	synced    atomic.Bool
	changedAt atomic.Int64 // when an object last changed, in Unix seconds: the serial number of the SOA record

	// mu is held for reading while an answer is found and packed, and for writing while objects change, so that no answer is kept that is
	// older than the objects.
	mu         sync.RWMutex
	entries    map[string]*entry // by entryKey
	namespaces map[string]struct{}
	clusterIPs map[netip.Addr][]*entry
	// endpoints lists an entry once for every slice of the Service, and every time in it, that has the address.
	endpoints map[netip.Addr][]*entry

	seed   maphash.Seed
	packed [packedShards]packedShard
}

// entry is a Service with its EndpointSlices.
type entry struct {
	namespace, name string
	service         *corev1.Service // nil if there are only slices
	slices          []*discoveryv1.EndpointSlice

	mu    sync.Mutex
	names map[string]struct{} // the names with packed answers, which invalidate drops
	// hosts maps hostnames within the Service, in lower case, to endpoints. It is built at the first query for one.
	hosts map[string][]target
}

const (
	packedShards = 64
	// maxShardBytes bounds the packed answers of a shard. A shard that exceeds it is emptied; its answers are packed again at the next query.
	maxShardBytes = 256 << 10
)

// packedShard holds the packed answers of some of the names.
type packedShard struct {
	mu    sync.RWMutex
	names map[string]*packedName
	bytes int
	_     [64]byte // keeps shards that different processors use in different cache lines
}

func newZone(domain []byte, ttl uint32, serverAddrs []netip.Addr) *zone {
	z := &zone{domain: domain, ttl: ttl, serverAddrs: serverAddrs, entries: map[string]*entry{}, namespaces: map[string]struct{}{},
		clusterIPs: map[netip.Addr][]*entry{}, endpoints: map[netip.Addr][]*entry{}, seed: maphash.MakeSeed()}
	for at := 0; domain[at] != 0; at += 1 + int(domain[at]) {
		z.labels++
	}
	for i := range z.packed {
		z.packed[i].names = map[string]*packedName{}
	}
	z.changedAt.Store(time.Now().Unix())
	return z
}

// watch registers event handlers that keep the zone up to date, and returns the checks that are done when it is complete.
func (z *zone) watch(f informers.SharedInformerFactory) ([]cache.DoneChecker, error) {
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

// changes returns an event handler that calls changed with an object as it was and as it is; before is nil for an added object, after for a
// deleted one.
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
	z.changedAt.Store(time.Now().Unix())
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
	z.invalidate(e)
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

// dropSlice removes the stored version of a slice, which need not be the version that an informer reports.
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
	z.invalidate(e)
}

func (z *zone) addSlice(slice *discoveryv1.EndpointSlice) {
	name := slice.Labels[discoveryv1.LabelServiceName]
	if name == "" || len(name) > maxLabel {
		return // the slice belongs to no Service
	}
	e := z.entry(slice.Namespace, name)
	e.slices = append(e.slices, slice)
	for addr := range addresses(slice) {
		z.endpoints[addr] = append(z.endpoints[addr], e)
	}
	z.invalidate(e)
}

// entry returns the entry of a Service, and adds it if there is none.
func (z *zone) entry(namespace, name string) *entry {
	key := entryKey(namespace, name)
	e := z.entries[key]
	if e == nil {
		e = &entry{namespace: namespace, name: name}
		z.entries[key] = e
	}
	return e
}

// entryKey returns the encoded labels of a Service's name and namespace, as they occur in DNS names.
func entryKey(namespace, name string) string {
	return string(appendLabel(appendLabel(make([]byte, 0, len(name)+len(namespace)+2), name), namespace))
}

// invalidate drops the packed answers of an entry, and the entry itself if it has neither a Service nor slices. z.mu must be held for writing.
func (z *zone) invalidate(e *entry) {
	e.mu.Lock()
	for name := range e.names {
		z.dropPacked(name)
	}
	e.names, e.hosts = nil, nil
	e.mu.Unlock()
	if e.service == nil && len(e.slices) == 0 {
		delete(z.entries, entryKey(e.namespace, e.name))
	}
	z.changedAt.Store(time.Now().Unix())
}

func remove(from map[netip.Addr][]*entry, addr netip.Addr, e *entry) {
	if i := slices.Index(from[addr], e); i >= 0 {
		from[addr] = slices.Delete(from[addr], i, i+1)
	}
	if len(from[addr]) == 0 {
		delete(from, addr)
	}
}

// clusterIPs returns the cluster IPs of a Service; none if it is headless.
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

// addresses returns the ready addresses of a slice, each with its hostname within the Service. Addresses of pods that are not ready are
// included if the Service sets publishNotReadyAddresses: the EndpointSlice controller marks them as ready then.
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
					continue // an FQDN, which is not served
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

// hostOf returns the hostname of an endpoint that has none of its own: its address with dashes.
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

// shard returns the shard that holds the answers about a name.
func (z *zone) shard(name []byte) *packedShard {
	return &z.packed[maphash.Bytes(z.seed, name)%packedShards]
}

// packedFor returns the packed answers about a name, which is given without "svc" and the domain; nil if there are none.
func (z *zone) packedFor(name []byte) *packedName {
	s := z.shard(name)
	s.mu.RLock()
	p := s.names[string(name)]
	s.mu.RUnlock()
	return p
}

// storePacked stores the packed answers about a name of the entry. z.mu must be held for reading.
func (z *zone) storePacked(e *entry, name []byte, p *packedName) {
	s := z.shard(name)
	s.mu.Lock()
	if other := s.names[string(name)]; other != nil {
		s.bytes -= other.size() // another query has packed it at the same time
	}
	if s.bytes += p.size(); s.bytes > maxShardBytes {
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

func (z *zone) dropPacked(name string) {
	s := z.shard([]byte(name))
	s.mu.Lock()
	if p := s.names[name]; p != nil {
		s.bytes -= p.size()
		delete(s.names, name)
	}
	s.mu.Unlock()
}
