package cluster

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation"

	"skiff/internal/client"
	"skiff/internal/cluster/pki"
	"skiff/internal/journey"
)

// nodeOptions are what a node is made of.
type nodeOptions struct {
	DataDir string
	Config  NodeConfig
	// Listeners are what else of skiff listens on this machine.
	Listeners []nodeListener
	Log       *slog.Logger
	Go        func(func()) // runs something that whoever runs the node waits for in the end
	Fail      func(error)  // is told what the node cannot go on without
}

// nodeListener is a port of the node's own, which no pod can have as a host port.
type nodeListener struct {
	use     string // whose it is: "the kubelet"
	network string // tcp or udp
	address string // host:port; any host if it is empty
}

// nodeAccess is what a node needs of its cluster.
type nodeAccess struct {
	Client *client.Client // as the node
	// As is the same for another component of the node, so that it can be told apart in journeys and in the server's metrics.
	As func(component string) (*client.Client, error)
	// Remote says that the API is in another process: then no objects are shared with it.
	Remote bool
	// ClientCAs are who vouches for those that come to the kubelet, right now.
	ClientCAs func() *x509.CertPool
	// Serving adds to a configuration the certificate that the kubelet shows, which is renewed meanwhile.
	Serving                    func(*tls.Config) *tls.Config
	ClusterCIDRs, ServiceCIDRs []string
	Domain                     string
	Network                    NetworkConfig
}

// startNode runs the node in the server's process until ctx ends.
func (s *Server) startNode(ctx context.Context) error {
	if s.node == nil {
		return nil
	}
	as := func(component string) (*client.Client, error) {
		return client.ForServer(s.api, client.Identity{Component: component, User: "system:node:" + s.config.Node.Name, Groups: []string{"system:nodes"}})
	}
	c, err := as("kubelet")
	if err != nil {
		return err
	}
	return s.node.start(ctx, nodeAccess{
		Client: c, As: as, ClientCAs: func() *x509.CertPool { return s.certs.Pool(pki.CA) },
		Serving:      func(base *tls.Config) *tls.Config { return s.certs.ServerConfig(base, pki.Kubelet, pki.CA) },
		ClusterCIDRs: s.config.Loops.ClusterCIDRs, ServiceCIDRs: s.config.ServiceCIDRs, Domain: clusterDomain, Network: s.config.Network,
	})
}

// nodeOptions are for the node in the server's process.
func (s *Server) nodeOptions() nodeOptions {
	listeners := []nodeListener{{"the API server", "tcp", net.JoinHostPort(s.config.BindAddress, strconv.Itoa(s.config.Port))}}
	if address, ok := strings.CutPrefix(s.config.EtcdListen, "https://"); ok {
		listeners = append(listeners, nodeListener{"etcd", "tcp", address})
	}
	return nodeOptions{DataDir: s.config.DataDir, Config: s.config.Node, Listeners: listeners, Log: s.config.Log, Go: s.wg.Go, Fail: s.fail}
}

// place is where things of the node on this machine are.
type place struct {
	kubelet                string // what the kubelet keeps: volumes
	podLogs, containerLogs string
	images, registry       string // what the registry serves, and the credentials that it asks for
	network, addresses     string // CNI: the configuration, and which addresses are in use
	cgroup                 string // below which pods have theirs
}

// placeOf is the same each time, so what an earlier skiff left is found.
func placeOf(dataDir string) place {
	sum := sha256.Sum256([]byte(dataDir))
	return place{
		kubelet: filepath.Join(dataDir, "kubelet"),
		podLogs: filepath.Join(dataDir, "log", "pods"), containerLogs: filepath.Join(dataDir, "log", "containers"),
		images: filepath.Join(dataDir, "images"), registry: filepath.Join(dataDir, "registry"),
		network: filepath.Join(dataDir, "cni", "net.d"), addresses: filepath.Join(dataDir, "cni", "addresses"),
		cgroup: "/skiff/" + hex.EncodeToString(sum[:4]),
	}
}

// completeNode fills in what is not said of the node.
func (n *NodeConfig) complete() error {
	if n.Name == "" {
		name, err := os.Hostname()
		if err != nil {
			return err
		}
		n.Name = strings.ToLower(strings.TrimSpace(name))
	}
	if problems := validation.IsDNS1123Subdomain(n.Name); len(problems) > 0 {
		return fmt.Errorf("the node cannot be called %q (--node-name or --hostname-override gives another name): %s", n.Name, strings.Join(problems, "; "))
	}
	if n.IP == "" {
		ip, err := utilnet.ChooseHostInterface()
		if err != nil {
			return fmt.Errorf("this machine has no address that pods could reach (--node-ip gives one): %w", err)
		}
		n.IP = ip.String()
	}
	if net.ParseIP(n.IP) == nil {
		return fmt.Errorf("--node-ip %q is not an IP address", n.IP)
	}
	if n.Port == 0 {
		n.Port = DefaultKubeletPort
	}
	orDefault(&n.RegistryAddress, DefaultRegistry)
	if e := n.RuntimeEndpoint; e != "" && !strings.HasPrefix(e, "unix://") {
		return fmt.Errorf("--container-runtime-endpoint %q is not like unix:///run/containerd/containerd.sock", e)
	}
	return nil
}

// dnsAddress is where the cluster's names are answered: the tenth of the services' addresses, if there are as many.
func dnsAddress(serviceCIDRs []string) []string {
	for _, cidr := range serviceCIDRs {
		r, err := netip.ParsePrefix(cidr)
		if err != nil {
			continue // it was checked
		}
		a := r.Masked().Addr()
		for range 10 {
			a = a.Next()
		}
		if !r.Contains(a) {
			return nil
		}
		return []string{a.String()}
	}
	return nil
}

// containerAttribute says in a journey which container it is about.
func containerAttribute(name string) []journey.Attribute {
	if name == "" {
		return nil
	}
	return []journey.Attribute{{Key: "container", Value: name}}
}
