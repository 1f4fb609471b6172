package model

import (
	"context"
	"log/slog"
	"net/netip"
)

// Mode is a way to have Services answer on this node. The proxy calls its methods one at a time. A mode's package has
//
//	func New(model.Config) (*Mode, error) // fails with a clear error where the mode cannot work, and changes nothing yet
//	func Clean() error                    // removes every trace from this network namespace; nothing to do is no error
//
// and passes the suite in package proxytest.
type Mode interface {
	// Sync brings this node from what the last Sync that returned nil left to what state says. If changes.All is set nothing is known of
	// what there is, maybe from an earlier run: then everything is written anew, without an instant in which a Port that was served and
	// still has endpoints is not. Otherwise only what changes names differs from the last time, and the cost should be that of the changes.
	//
	// Connections that are established to endpoints that are still there are not disturbed. All of it becomes effective at once, as far as
	// the mode can. After an error the next call has changes.All set. Ports belong to the tracker and must not be changed, but may be kept.
	Sync(ctx context.Context, state *State, changes Changes) error

	// Intact reports whether what the last Sync wrote is still there, as far as that is cheap to tell: somebody may have flushed all rules.
	// It is called every now and then; if not, a Sync of everything follows.
	Intact(ctx context.Context) (bool, error)

	// FlowsInKernel reports whether the kernel's connection tracking remembers where the packets of a sender of UDP go. Then the proxy has it
	// forget what leads to endpoints that are gone, after each Sync.
	FlowsInKernel() bool

	// Close ends what runs in this process: listeners and goroutines, if the mode has any. What the kernel holds stays, so that traffic
	// survives a restart. What removes that, for a machine that is to be as before, is the function Clean of the mode's package.
	Close() error
}

// Config is what modes are made with. Zero values have a meaning.
type Config struct {
	NodeName string
	NodeIPs  []netip.Addr // at most one per family

	// ClusterCIDRs are the ranges of pods' addresses, of all nodes. What comes from them is from inside the cluster: it is not masqueraded on
	// its way to a cluster IP, and reaches external addresses as if there were no traffic policy. Without any, nobody is known to be inside.
	ClusterCIDRs []netip.Prefix

	// NodePortAddresses are the ranges of addresses of this node at which node ports answer. Empty means NodeIPs; a range of zero bits means
	// every address of that family that this node has. Never loopback addresses.
	NodePortAddresses []netip.Prefix

	MasqueradeAll bool // what goes to cluster IPs, from wherever it comes
	MasqueradeBit uint // of the packet mark that says that a packet is to be masqueraded; 0 means 14
	Log           *slog.Logger
}

// Mark is the packet mark for what is to be masqueraded.
func (c Config) Mark() uint32 {
	if c.MasqueradeBit == 0 || c.MasqueradeBit > 31 {
		return 1 << 14
	}
	return 1 << c.MasqueradeBit
}

// FromInside reports whether an address is that of a pod of the cluster.
func (c Config) FromInside(a netip.Addr) bool {
	for _, p := range c.ClusterCIDRs {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// NodePortRanges are NodePortAddresses with the default in place. everywhere is set for a family if all of the node's addresses count.
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

// State is everything that this node is to serve.
type State struct {
	Ports map[Key]*Port
	// ServiceCIDRs are the ranges of cluster IPs. What goes to an address in them that no Service has is dropped instead of leaving the node.
	ServiceCIDRs []netip.Prefix
}

// Changes are what is different since the last Sync that worked.
type Changes struct {
	All   bool     // whatever there was is unknown
	Ports []Change // in the order of their keys; nothing useful if All is set
}

// Change is a Port that is new (Old is nil), gone (New is nil) or different.
type Change struct {
	Key      Key
	Old, New *Port
}
