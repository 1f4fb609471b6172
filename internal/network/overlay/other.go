//go:build !linux

package overlay

import (
	"errors"
	"net/netip"
)

var errLinux = errors.New("the overlay is for nodes, which run on Linux")

// kernel stands for the Linux kernel's network, which other systems do not have.
type kernel struct{ device int }

func openKernel(settings, Options, func(kind, action string), tunnelCounts) (*kernel, error) {
	return nil, errLinux
}

func (k *kernel) close()                                          {}
func (k *kernel) underlay([]netip.Addr) (underlay, error)         { return underlay{}, errLinux }
func (k *kernel) enableForwarding(underlay, []netip.Prefix) error { return errLinux }
func (k *kernel) guard(map[netip.Addr]bool) error                 { return errLinux }
func (k *kernel) ensureDevice(underlay, plan, *node) error        { return errLinux }
func (k *kernel) readState() error                                { return errLinux }
func (k *kernel) apply(plan) error                                { return errLinux }
func (k *kernel) removeUnused() error                             { return errLinux }

// linkWatcher has nothing to watch on other systems.
type linkWatcher struct{ events, lost chan struct{} }

func watchLinks(...string) (*linkWatcher, error)  { return nil, errLinux }
func (f *linkWatcher) close()                     {}
func (f *linkWatcher) filter([]int, []netip.Addr) {}

// MTU fails: pods run only on Linux.
func MTU(string, []netip.Addr) (int, error) { return 0, errLinux }

// Clean does nothing: there is no overlay to remove on other systems.
func Clean() error { return nil }
