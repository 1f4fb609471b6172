package csi

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// callTimeout is how long a call to a driver may take.
const callTimeout = 2 * time.Minute

// statsTimeout is how long a driver may take to say what is used of a volume: all volumes of the node are measured one after another.
const statsTimeout = 10 * time.Second

// capabilities are what a driver's node service can do.
type capabilities map[csi.NodeServiceCapability_RPC_Type]bool

// driver is a CSI driver that is registered on the node.
type driver struct {
	name string
	node csi.NodeServer

	mu           sync.Mutex
	capabilities capabilities // nil until the driver was asked
}

// can reports whether the driver's node service has a capability. The driver is asked once.
func (d *driver) can(ctx context.Context, what csi.NodeServiceCapability_RPC_Type) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.capabilities == nil {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		response, err := d.node.NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{})
		if err != nil {
			return false, err
		}
		d.capabilities = capabilities{}
		for _, c := range response.GetCapabilities() {
			d.capabilities[c.GetRpc().GetType()] = true
		}
	}
	return d.capabilities[what], nil
}

// drivers are the CSI drivers that are registered on the node, by name.
type drivers struct {
	mu   sync.Mutex
	list map[string]*driver
}

// get returns a driver, or the error that upstream has for one that is not there.
func (d *drivers) get(name string) (*driver, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if found := d.list[name]; found != nil {
		return found, nil
	}
	return nil, fmt.Errorf("driver name %s not found in the list of registered CSI drivers", name)
}

// set adds a driver, or replaces the one with its name.
func (d *drivers) set(name string, node csi.NodeServer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.list == nil {
		d.list = map[string]*driver{}
	}
	d.list[name] = &driver{name: name, node: node}
}

// remove removes a driver.
func (d *drivers) remove(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.list, name)
}

// names returns the names of all drivers, sorted.
func (d *drivers) names() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.list))
}
