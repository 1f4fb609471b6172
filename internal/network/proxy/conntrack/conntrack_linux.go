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

// DeleteStale deletes the UDP flows whose endpoint a change removed, and returns how many. It must be called after the mode has brought the
// change into effect. Only flows to addresses and ports of changed UDP Ports are considered.
func DeleteStale(state *model.State, changes model.Changes) (int, error) {
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
			failed = errors.Join(failed, fmt.Errorf("failed to delete stale UDP flows: %w", err))
		}
	}
	return total, failed
}

// attempts bounds how often the kernel's list is read when it changes while it is read.
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

// stale is a conntrack filter: it matches flows to changed frontends that do not lead to a serving endpoint.
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
	for _, c := range changes.Ports { // removed Ports first: another Port may have their addresses by now
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

// MatchConntrackFlow reports whether a flow is stale.
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
	// Any address may be the node's: a flow that was not redirected is not the proxy's, unless there is an endpoint that it could have gone to.
	serving, ok := s.nodePorts[flow.Forward.DstPort]
	return ok && !slices.Contains(serving, endpoint) && (len(serving) > 0 || to != from)
}
