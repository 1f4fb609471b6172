package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skiff/internal/network/proxy/model"
)

// Forget removes the flows that a change left without an endpoint, after the mode has brought the change into effect. It looks at nothing
// but flows to addresses and ports of UDP that changed, and returns how many it removed.
func Forget(state *model.State, changes model.Changes) (int, error) {
	total := 0
	var failed error
	for _, family := range []model.Family{model.IPv4, model.IPv6} {
		stale := staleIn(family, state, changes)
		if stale == nil {
			continue
		}
		table := netlink.InetFamily(unix.AF_INET)
		if family == model.IPv6 {
			table = unix.AF_INET6
		}
		n, err := remove(table, stale)
		total += n
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("forgetting flows of UDP: %w", err))
		}
	}
	return total, failed
}

// attempts is how often the kernel's list is read, if it changed too much while it was.
const attempts = 5

func remove(table netlink.InetFamily, stale *stale) (int, error) {
	total := 0
	var err error
	for range attempts {
		var n uint
		n, err = netlink.ConntrackDeleteFilters(netlink.ConntrackTable, table, stale)
		total += int(n)
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return total, err
}

// stale is a filter: flows to what changed that do not lead to an endpoint that serves.
type stale struct {
	frontends map[netip.AddrPort][]netip.AddrPort
	nodePorts map[uint16][]netip.AddrPort
}

func staleIn(family model.Family, state *model.State, changes model.Changes) *stale {
	s := &stale{frontends: map[netip.AddrPort][]netip.AddrPort{}, nodePorts: map[uint16][]netip.AddrPort{}}
	concerns := func(p *model.Port) bool { return p != nil && p.Key.Protocol == model.UDP && p.Key.Family == family }
	if changes.All {
		for _, p := range state.Ports {
			if concerns(p) {
				s.add(p, p.Serving)
			}
		}
	}
	for _, c := range changes.Ports { // what is gone first: another Port may have its addresses by now
		if concerns(c.Old) {
			s.add(c.Old, nil)
		}
	}
	for _, c := range changes.Ports {
		if concerns(c.New) {
			s.add(c.New, c.New.Serving)
		}
	}
	if len(s.frontends)+len(s.nodePorts) == 0 {
		return nil
	}
	return s
}

func (s *stale) add(p *model.Port, serving []netip.AddrPort) {
	s.frontends[netip.AddrPortFrom(p.ClusterIP, p.Port)] = serving
	for _, a := range p.ExternalAddresses() {
		s.frontends[netip.AddrPortFrom(a, p.Port)] = serving
	}
	if p.NodePort != 0 {
		s.nodePorts[p.NodePort] = serving
	}
}

// MatchConntrackFlow reports whether to forget a flow.
func (s *stale) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	if flow.Forward.Protocol != unix.IPPROTO_UDP {
		return false
	}
	to, _ := netip.AddrFromSlice(flow.Forward.DstIP)
	from, _ := netip.AddrFromSlice(flow.Reverse.SrcIP)
	to, from = to.Unmap(), from.Unmap()
	endpoint := netip.AddrPortFrom(from, flow.Reverse.SrcPort)
	if serving, ok := s.frontends[netip.AddrPortFrom(to, flow.Forward.DstPort)]; ok {
		return !slices.Contains(serving, endpoint)
	}
	// Any address may be the node's: what was not redirected is none of ours, unless there is an endpoint that it could have gone to.
	serving, ok := s.nodePorts[flow.Forward.DstPort]
	return ok && !slices.Contains(serving, endpoint) && (len(serving) > 0 || to != from)
}
