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
	// ownFresh is how long the list of the machine's addresses is taken for true when an address is not in it.
	ownFresh = time.Second
	// sayAgain is the least time between two log lines about sources that are not answered.
	sayAgain = time.Minute
)

// sources says whom the server answers: pods, the node itself, and nobody else, lest it be a resolver for everybody who reaches the node.
type sources struct {
	ranges []netip.Prefix                 // of pods, on all nodes
	fixed  []netip.Addr                   // of the node, where the server listens
	list   func() ([]netip.Prefix, error) // the addresses of the machine's interfaces
	log    *slog.Logger

	own     atomic.Pointer[map[netip.Addr]bool] // what list returned; nil at first
	dropped atomic.Uint64
	mu      sync.Mutex
	asked   time.Time // when list was called
	said    time.Time // when a drop was logged
}

// allow reports whether an address is that of a pod or of the node.
func (s *sources) allow(ip netip.Addr) bool {
	ip = ip.Unmap()
	if ip.IsLoopback() || slices.ContainsFunc(s.ranges, func(p netip.Prefix) bool { return p.Contains(ip) }) || slices.Contains(s.fixed, ip) {
		return true
	}
	if own := s.own.Load(); own != nil && (*own)[ip] {
		return true
	}
	return s.look(ip)
}

// look is allow for an address that was not the node's when its addresses were listed last.
func (s *sources) look(ip netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.asked) >= ownFresh {
		s.asked = now
		own := map[netip.Addr]bool{}
		all, err := s.list()
		if err != nil {
			s.log.Warn("failed to list the addresses of the node", "err", err)
		}
		for _, p := range all {
			own[p.Addr().Unmap().WithZone("")] = true
		}
		s.own.Store(&own)
		if own[ip] {
			return true
		}
	} else if own := s.own.Load(); own != nil && (*own)[ip] {
		return true
	}
	s.dropped.Add(1)
	if now := time.Now(); now.Sub(s.said) >= sayAgain {
		s.said = now
		s.log.Warn("dropped a DNS query: its source is neither a pod (--cluster-cidr) nor this node", "source", ip, "dropped", s.dropped.Load())
	}
	return false
}

// interfaceAddresses are the addresses of this machine.
func interfaceAddresses() (out []netip.Prefix, err error) {
	all, err := net.InterfaceAddrs()
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p)
		}
	}
	return out, err
}
