//go:build !linux

package overlay

import (
	"errors"
	"net/netip"
)

var errLinux = errors.New("the overlay is for nodes, which run on Linux")

// kernel is that of a node; there is none here.
type kernel struct{ device int }

func openKernel(settings, Options, func(kind, action string), tunnelCounts) (*kernel, error) {
	return nil, errLinux
}

func (k *kernel) close()                                    {}
func (k *kernel) underlay([]netip.Addr) (underlay, error)   { return underlay{}, errLinux }
func (k *kernel) forwarding(underlay, []netip.Prefix) error { return errLinux }
func (k *kernel) guard(map[netip.Addr]bool) error           { return errLinux }
func (k *kernel) ensureDevice(underlay, plan, *node) error  { return errLinux }
func (k *kernel) look() error                               { return errLinux }
func (k *kernel) apply(plan) error                          { return errLinux }
func (k *kernel) removeUnused() error                       { return errLinux }

// follower has nothing to follow.
type follower struct{ news, lost chan struct{} }

func follow(...string) (*follower, error)     { return nil, errLinux }
func (f *follower) close()                    {}
func (f *follower) watch([]int, []netip.Addr) {}

// MTU is that of pods' links; no pods run here.
func MTU(string, []netip.Addr) (int, error) { return 0, errLinux }

// Clean has nothing to remove where no pods run.
func Clean() error { return nil }
