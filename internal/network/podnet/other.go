//go:build !linux

package podnet

import (
	"errors"
	"net/netip"
)

var errLinux = errors.New("host ports are for nodes, which run on Linux")

// HostPorts keeps the host ports of a node; there is none here.
type HostPorts struct{}

// Set says that there are no nodes here.
func (h *HostPorts) Set(string, []netip.Addr, []Mapping) error { return errLinux }

// Remove has nothing to remove.
func (h *HostPorts) Remove(string) error { return nil }

// Restore has nothing to restore.
func (h *HostPorts) Restore(map[string]Ports) error { return nil }

// OutgoingMTU is what most links have.
func OutgoingMTU(int) int { return 1500 }

// Clean has nothing to remove where no pods run.
func (c Config) Clean() error { return nil }

// EnsureMasquerade has nothing to do where no pods run.
func EnsureMasquerade([]netip.Prefix) error { return nil }
