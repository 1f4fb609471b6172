//go:build !linux

package podnet

import (
	"errors"
	"net/netip"
)

var errLinux = errors.New("host ports are for nodes, which run on Linux")

// HostPorts stands for the host ports of a node, which runs only on Linux.
type HostPorts struct{}

// Set fails: nodes run only on Linux.
func (h *HostPorts) Set(string, []netip.Addr, []Mapping) error { return errLinux }

// Remove has nothing to remove.
func (h *HostPorts) Remove(string) error { return nil }

// Restore has nothing to restore.
func (h *HostPorts) Restore(map[string]Ports) error { return nil }

// OutgoingMTU returns 1500, the MTU of most links.
func OutgoingMTU(int) int { return 1500 }

// Clean does nothing: there is no pod network on other systems.
func (c Config) Clean() error { return nil }

// EnsureMasquerade does nothing: there is no pod network on other systems.
func EnsureMasquerade([]netip.Prefix) error { return nil }
