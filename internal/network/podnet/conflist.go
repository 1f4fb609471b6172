package podnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// NetworkName is the name of skiff's CNI network.
	NetworkName = "skiff"
	// fileName sorts after the names that people usually give: containerd uses the first file.
	fileName = "zz-skiff.conflist"
	// cniState is CNI's default state directory: addresses are in networks/NAME, results in results/NAME-*.
	cniState = "/var/lib/cni"
)

// Config configures the pod network of a node.
type Config struct {
	// Dir is the directory of CNI configurations.
	Dir string
	// State is the directory of the addresses in use.
	State string
	// PodCIDRs lists the node's pod CIDRs: one, or one of each family.
	PodCIDRs []netip.Prefix
	// MTU is the MTU of pods' links; that of the link of the default route if 0.
	MTU int
	// Socket is the path of the Server's socket, in a directory of its own. If it is empty, CNI's ptp and host-local attach pods.
	Socket string
}

// Write writes skiff's CNI configuration. The runtime uses it unless the directory has another one.
func (c Config) Write() error {
	if len(c.PodCIDRs) == 0 {
		return errors.New("failed to write the CNI configuration: the node has no pod CIDR yet")
	}
	if c.MTU == 0 {
		c.MTU = OutgoingMTU(1)
	}
	data, err := json.MarshalIndent(c.list(), "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(c.Dir, fileName)
	if old, err := os.ReadFile(path); err == nil && string(old) == string(data) {
		return nil
	}
	part := filepath.Join(c.Dir, "."+fileName+".part")
	if err := os.WriteFile(part, data, 0o644); err != nil {
		return err
	}
	return os.Rename(part, path)
}

func (c Config) list() any {
	type object = map[string]any
	network := func(plugin object) any {
		return object{"cniVersion": "1.0.0", "name": NetworkName, "plugins": []object{plugin}}
	}
	if c.Socket != "" {
		var ranges []netip.Prefix
		for _, p := range c.PodCIDRs {
			ranges = append(ranges, p.Masked())
		}
		return network(object{"type": "skiff", "socket": c.Socket, "mtu": c.MTU, "ranges": ranges})
	}
	var ranges [][]object
	var routes []object
	for _, p := range c.PodCIDRs {
		ranges = append(ranges, []object{{"subnet": p.Masked().String()}})
		everything := "0.0.0.0/0"
		if p.Addr().Is6() {
			everything = "::/0"
		}
		routes = append(routes, object{"dst": everything})
	}
	return network(object{"type": "ptp", "mtu": c.MTU, "ipam": object{"type": "host-local", "dataDir": c.State, "ranges": ranges, "routes": routes}})
}

// network holds the parts of a CNI configuration that Clean uses.
type network struct {
	Name    string   `json:"name"`
	Plugins []plugin `json:"plugins"`
}

type plugin struct {
	Type   string `json:"type"`
	Bridge string `json:"bridge"`
	IPAM   struct {
		DataDir string `json:"dataDir"`
	} `json:"ipam"`
}

// networks returns the CNI networks of a directory, in the order in which the runtime prefers them.
func networks(dir string) ([]network, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []network
	for _, e := range entries {
		if !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name())) || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		var n network
		if json.Unmarshal(data, &n) != nil {
			continue // containerd reports what is wrong with it
		}
		if n.Plugins == nil {
			var single plugin
			if err := json.Unmarshal(data, &single); err != nil {
				return nil, fmt.Errorf("%s: %w", e.Name(), err)
			}
			n.Plugins = []plugin{single}
		}
		out = append(out, n)
	}
	return out, nil
}
