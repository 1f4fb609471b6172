package dns

import (
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// nodeAddrsMaxAge is the least time between two listings of the node's addresses.
	nodeAddrsMaxAge = time.Second
	// dropLogInterval is the least time between two log lines about dropped queries.
	dropLogInterval = time.Minute
)

// sources decides whose queries are answered: those of pods and of the node itself. All others are dropped, so that the node is not an open
// resolver for everybody who reaches it.
type sources struct {
	podCIDRs    []netip.Prefix                 // the pod CIDRs of all nodes
	listenAddrs []netip.Addr                   // the node's addresses that the server listens on
	listAddrs   func() ([]netip.Prefix, error) // lists the addresses of the node's interfaces
	log         *slog.Logger

	nodeAddrs atomic.Pointer[map[netip.Addr]bool] // the last result of listAddrs; nil before the first
	dropped   atomic.Uint64
	mu        sync.Mutex
	listedAt  time.Time // when listAddrs was last called
	loggedAt  time.Time // when a dropped query was last logged
}

// allow reports whether a source address is that of a pod or of the node.
func (s *sources) allow(ip netip.Addr) bool {
	ip = ip.Unmap()
	if ip.IsLoopback() || slices.ContainsFunc(s.podCIDRs, func(p netip.Prefix) bool { return p.Contains(ip) }) || slices.Contains(s.listenAddrs, ip) {
		return true
	}
	if known := s.nodeAddrs.Load(); known != nil && (*known)[ip] {
		return true
	}
	return s.allowNodeAddr(ip)
}

// allowNodeAddr reports whether an address that is not in nodeAddrs is the node's after all: it lists the node's addresses again, at most
// once every nodeAddrsMaxAge. An address that is not is counted and logged as dropped.
func (s *sources) allowNodeAddr(ip netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.listedAt) >= nodeAddrsMaxAge {
		s.listedAt = now
		s.refresh()
	}
	if known := s.nodeAddrs.Load(); known != nil && (*known)[ip] {
		return true
	}
	s.dropped.Add(1)
	if now := time.Now(); now.Sub(s.loggedAt) >= dropLogInterval {
		s.loggedAt = now
		s.log.Warn("dropped a DNS query: its source is neither a pod (--cluster-cidr) nor this node", "source", ip, "dropped", s.dropped.Load())
	}
	return false
}

// refresh lists the node's addresses. If that fails the addresses of the last listing stay allowed.
func (s *sources) refresh() {
	all, err := s.listAddrs()
	if err != nil {
		s.log.Warn("failed to list the addresses of the node", "err", err)
		return
	}
	listed := map[netip.Addr]bool{}
	for _, p := range all {
		listed[p.Addr().Unmap().WithZone("")] = true
	}
	s.nodeAddrs.Store(&listed)
}

// interfaceAddresses returns the addresses of all interfaces of this machine.
func interfaceAddresses() (out []netip.Prefix, err error) {
	all, err := net.InterfaceAddrs()
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p)
		}
	}
	return out, err
}
