package local

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"skiff/internal/bundle"
	"skiff/internal/cluster/process"
)

// MaxNodes bounds the nodes of a cluster on one machine.
const MaxNodes = 100

// Layout is the description of a cluster of local nodes, which is kept while it is down.
type Layout struct {
	Name   string       `json:"name"`
	Subnet netip.Prefix `json:"subnet"` // addresses of the underlay
	Port   int          `json:"port"`   // port of the API, on the machine's loopback and on node 1
	Memory int64        `json:"memory"` // limit of each node, in bytes; none if 0
	Nodes  []Node       `json:"nodes"`
	// Server and Agent are the flags of the last start of the server and of the agents.
	Server []string `json:"server"`
	Agent  []string `json:"agent"`

	dataDir string
}

// Node is a local node. The first is the server.
type Node struct {
	Name      string     `json:"name"`
	Number    int        `json:"number"`
	Address   netip.Addr `json:"address"`
	MachineID string     `json:"machineID"`
}

// Server reports whether the control plane runs on the node.
func (n Node) Server() bool { return n.Number == 1 }

// port returns the name of the node's port in the underlay.
func (n Node) port() string { return fmt.Sprintf("node-%d", n.Number) }

// hardware returns the MAC address of a node's interface: the same at each start, so that entries in others' neighbour tables stay valid.
func hardware(a netip.Addr) net.HardwareAddr {
	b := a.As4()
	return net.HardwareAddr{0x02, 0x73, b[0], b[1], b[2], b[3]}
}

func layoutPath(dataDir string) string { return filepath.Join(dataDir, "nodes.json") }

// Exists reports whether the cluster of a data directory is one of local nodes.
func Exists(dataDir string) bool {
	_, err := os.Stat(layoutPath(dataDir))
	return err == nil
}

// Load reads the layout of a cluster of local nodes.
func Load(dataDir string) (*Layout, error) {
	dataDir, err := bundle.Resolve(dataDir)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(layoutPath(dataDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no nodes of its own: skiff up --nodes N makes some", dataDir)
	}
	if err != nil {
		return nil, err
	}
	l := &Layout{dataDir: dataDir}
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(l); err != nil {
		return nil, fmt.Errorf("%s: %w", layoutPath(dataDir), err)
	}
	return l, l.check()
}

// check refuses a layout that was edited to something invalid.
func (l *Layout) check() error {
	file := layoutPath(l.dataDir)
	if !l.Subnet.IsValid() || !l.Subnet.Addr().Is4() || len(l.Nodes) == 0 || len(l.Nodes) > MaxNodes || l.Port < 1 || l.Port > 65535 || l.Memory < 0 {
		return fmt.Errorf("%s does not describe a cluster: its subnet, nodes, port or memory are invalid", file)
	}
	for i, n := range l.Nodes {
		if n.Number != i+1 || !l.Subnet.Contains(n.Address) || checkName(n.Name) != nil || len(n.MachineID) != 32 {
			return fmt.Errorf("%s does not describe node %d as it should", file, i+1)
		}
	}
	return nil
}

func checkName(name string) error {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return fmt.Errorf("a node cannot be called %q: %s", name, strings.Join(problems, "; "))
	}
	return nil
}

func (l *Layout) save() error {
	data, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(layoutPath(l.dataDir), append(data, '\n'), 0o600)
}

// writeFile replaces a file by a rename and syncs it, so that it has the old content or the new also after a power failure.
func writeFile(path string, data []byte, mode fs.FileMode) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	f, err := os.OpenFile(path+".part", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}

// grow adds nodes until there are count.
func (l *Layout) grow(count int) error {
	if count < len(l.Nodes) {
		return fmt.Errorf("the cluster has %d nodes; they do not become fewer by --nodes %d", len(l.Nodes), count)
	}
	for len(l.Nodes) < count {
		number := len(l.Nodes) + 1
		n := Node{Name: fmt.Sprintf("%s-%d", l.Name, number), Number: number, Address: offset(l.Subnet, firstNode+number)}
		if err := checkName(n.Name); err != nil {
			return err
		}
		id := make([]byte, 16)
		rand.Read(id)
		n.MachineID = hex.EncodeToString(id)
		l.Nodes = append(l.Nodes, n)
	}
	return nil
}

// Numbers of addresses in the underlay: the machine's, and the one that nodes' numbers are added to.
const gatewayNumber, firstNode = 1, 10

func offset(p netip.Prefix, n int) netip.Addr {
	b := p.Masked().Addr().As4()
	b[3] += byte(n)
	return netip.AddrFrom4(b)
}

func (l *Layout) gateway() netip.Addr { return offset(l.Subnet, gatewayNumber) }

// Find returns the node of a name.
func (l *Layout) Find(name string) (Node, error) {
	i := slices.IndexFunc(l.Nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		var names []string
		for _, n := range l.Nodes {
			names = append(names, n.Name)
		}
		return Node{}, fmt.Errorf("there is no node %q; there are %s", name, strings.Join(names, ", "))
	}
	return l.Nodes[i], nil
}

// id returns the part that all names of this cluster on the machine have in common.
func (l *Layout) id() string {
	sum := sha256.Sum256([]byte(l.dataDir))
	return hex.EncodeToString(sum[:4])
}

// device returns the name of the machine's interface in the underlay, and of the nftables table on the machine.
func (l *Layout) device() string { return "skiff-" + l.id() }

// underlay returns the file that the underlay's network namespace is mounted at.
func (l *Layout) underlay() string { return filepath.Join(runDir, l.id()+".net") }

// runDir is the directory of what need not survive a reboot; package bundle uses it too.
const runDir = "/run/skiff"

func (l *Layout) clusterGroup() string { return "/skiff/" + l.id() }
func (l *Layout) group(n Node) string  { return l.clusterGroup() + "/" + n.Name }
func (l *Layout) root(n Node) string   { return filepath.Join(l.dataDir, "nodes", n.Name, "root") }
func (l *Layout) programs() string     { return filepath.Join(l.dataDir, "program") }
func (l *Layout) log(n Node) string    { return process.LogPath(l.data(n)) }
func (l *Layout) data(n Node) string {
	if n.Server() {
		return l.dataDir
	}
	return filepath.Join(l.root(n), inside)
}

// inside is the path of the data directory in a node.
const inside = "/var/lib/skiff"

// subnets is the range that underlays are in: private addresses that are rarely used.
var subnets = netip.MustParsePrefix("172.30.0.0/16")

// chooseSubnet returns the first subnet that overlaps none of those in use.
func chooseSubnet(used []netip.Prefix) (netip.Prefix, error) {
	base := subnets.Addr().As4()
	for third := range 256 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{base[0], base[1], byte(third), 0}), 24)
		if !slices.ContainsFunc(used, p.Overlaps) {
			return p, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("no range of addresses in %s is free for the nodes' network", subnets)
}
