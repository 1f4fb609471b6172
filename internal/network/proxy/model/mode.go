package model

import (
	"context"
	"log/slog"
	"net/netip"
)

// Mode programs Services on this node. The proxy calls its methods one at a time. A mode's package has
//
//	func New(model.Config) (*Mode, error) // fails with a clear error where the mode cannot work, and changes nothing yet
//	func Clean() error                    // removes everything from this network namespace; it is not an error if there is nothing
//
// and passes the suite in package proxytest.
type Mode interface {
	// Sync changes this node from the state of the last Sync that returned nil to state. If changes.All is set the current rules are unknown,
	// maybe from an earlier run: then everything is written again, without an instant in which a Port that was served and still has endpoints
	// is not. Otherwise only the Ports in changes differ from the last Sync, and the cost should be that of the changes.
	//
	// Established connections to endpoints that still exist are not disturbed. All of it becomes effective at once, as far as the mode can.
	// After an error the next call has changes.All set. Ports belong to the tracker and must not be changed, but may be kept.
	Sync(ctx context.Context, state *State, changes Changes) error

	// Intact reports whether the rules of the last Sync are still there, as far as that is cheap to tell: somebody may have flushed all rules.
	// It is called periodically; if it reports false, a Sync of everything follows.
	Intact(ctx context.Context) (bool, error)

	// FlowsInKernel reports whether the kernel's connection tracking decides where the packets of a UDP client go. Then the proxy deletes
	// stale conntrack entries after each Sync.
	FlowsInKernel() bool

	// Close stops the mode's listeners and goroutines in this process, if it has any. The kernel's rules stay, so that traffic survives a
	// restart; the function Clean of the mode's package removes them.
	Close() error
}

// Config configures a Mode. Zero values have a meaning.
type Config struct {
	NodeName string
	NodeIPs  []netip.Addr // at most one per family

	// ClusterCIDRs lists the pod CIDRs of all nodes. Traffic from them is from inside the cluster: it is not masqueraded on its way to a cluster
	// IP, and the external traffic policy does not apply to it. If empty, no traffic counts as from inside.
	ClusterCIDRs []netip.Prefix

	// NodePortAddresses lists the ranges of this node's addresses at which node ports answer. Empty means NodeIPs; a range of zero bits means
	// every address of that family that this node has. Loopback addresses are always excluded.
	NodePortAddresses []netip.Prefix

	MasqueradeAll bool // masquerade all traffic to cluster IPs
	MasqueradeBit uint // the bit of the packet mark that requests masquerading; 0 means 14
	Log           *slog.Logger
}

// Mark returns the packet mark that requests masquerading.
func (c Config) Mark() uint32 {
	if c.MasqueradeBit == 0 || c.MasqueradeBit > 31 {
		return 1 << 14
	}
	return 1 << c.MasqueradeBit
}

// FromCluster reports whether an address is in ClusterCIDRs.
func (c Config) FromCluster(a netip.Addr) bool {
	for _, p := range c.ClusterCIDRs {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// NodePortRanges returns the NodePortAddresses of a family, or the default. everywhere is set if node ports answer at all of the node's addresses.
func (c Config) NodePortRanges(f Family) (ranges []netip.Prefix, everywhere bool) {
	if len(c.NodePortAddresses) == 0 {
		for _, a := range c.NodeIPs {
			if FamilyOf(a) == f {
				ranges = append(ranges, netip.PrefixFrom(a, a.BitLen()))
			}
		}
		return ranges, false
	}
	for _, p := range c.NodePortAddresses {
		if FamilyOf(p.Addr()) != f {
			continue
		}
		if p.Bits() == 0 {
			return nil, true
		}
		ranges = append(ranges, p.Masked())
	}
	return ranges, false
}

// State is everything that this node must serve.
type State struct {
	Ports map[Key]*Port
	// ServiceCIDRs lists the ranges of cluster IPs. Traffic to an address in them that no Service has is dropped instead of leaving the node.
	ServiceCIDRs []netip.Prefix
}

// Changes lists what changed since the last successful Sync.
type Changes struct {
	All   bool     // the current rules are unknown: everything must be written
	Ports []Change // sorted by key; to be ignored if All is set
}

// Change is a Port that was added (Old is nil), removed (New is nil) or changed.
type Change struct {
	Key      Key
	Old, New *Port
}
