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

// nodeOptions configure a node.
type nodeOptions struct {
	DataDir string
	Config  NodeConfig
	// Listeners are the other listeners of this process, whose ports no pod can have.
	Listeners []nodeListener
	Log       *slog.Logger
	Go        func(func()) // runs a function in a goroutine that the owner of the node waits for
	Fail      func(error)  // called with an error that the node cannot go on after
}

// nodeListener is an address that skiff listens on, whose port no pod can have as a host port.
type nodeListener struct {
	use     string // what listens there, such as "the kubelet"
	network string // tcp or udp
	address string // host:port; all addresses of the node if host is empty
}

// nodeAccess is how a node reaches its cluster, and what it must know of it.
type nodeAccess struct {
	Client *client.Client // acts as the node
	// As returns a client that acts as the node too, for another component, which journeys and the server's metrics then tell apart.
	As func(component string) (*client.Client, error)
	// Remote says that the API server is another process, which shares no objects with the node.
	Remote bool
	// ClientCAs returns the current authorities of the client certificates that the kubelet accepts.
	ClientCAs func() *x509.CertPool
	// Serving adds the kubelet's certificate, which is renewed meanwhile, to a TLS configuration.
	Serving                    func(*tls.Config) *tls.Config
	ClusterCIDRs, ServiceCIDRs []string
	Domain                     string
	Network                    NetworkConfig
}

// startNode starts the node in the server's process, which runs until ctx ends.
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

// nodeOptions returns the options of the node in the server's process.
func (s *Server) nodeOptions() nodeOptions {
	listeners := []nodeListener{{"the API server", "tcp", net.JoinHostPort(s.config.BindAddress, strconv.Itoa(s.config.Port))}}
	if address, ok := strings.CutPrefix(s.config.EtcdListen, "https://"); ok {
		listeners = append(listeners, nodeListener{"etcd", "tcp", address})
	}
	return nodeOptions{DataDir: s.config.DataDir, Config: s.config.Node, Listeners: listeners, Log: s.config.Log, Go: s.wg.Go, Fail: s.fail}
}

// nodePaths are the directories of a node.
type nodePaths struct {
	kubelet                string // the kubelet's root directory, with volumes
	volumes                string // the images of local volumes
	podLogs, containerLogs string
	images, registry       string // the images that the registry serves, and its credentials
	cniConfig, cniState    string // CNI's configuration, and the addresses in use
	cgroup                 string // the parent of all pods' cgroups
}

// pathsOf returns the paths of a data directory's node. They are the same at each start, so that what an earlier process left is found.
func pathsOf(dataDir string) nodePaths {
	sum := sha256.Sum256([]byte(dataDir))
	return nodePaths{
		kubelet: filepath.Join(dataDir, "kubelet"), volumes: filepath.Join(dataDir, "volumes"),
		podLogs: filepath.Join(dataDir, "log", "pods"), containerLogs: filepath.Join(dataDir, "log", "containers"),
		images: filepath.Join(dataDir, "images"), registry: filepath.Join(dataDir, "registry"),
		cniConfig: filepath.Join(dataDir, "cni", "net.d"), cniState: filepath.Join(dataDir, "cni", "addresses"),
		cgroup: "/skiff/" + hex.EncodeToString(sum[:4]),
	}
}

// complete fills in defaults and returns an error for what is invalid.
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

// dnsAddress returns the cluster IP of the cluster's DNS: the tenth address of the first range of Services, or none if the range is smaller.
func dnsAddress(serviceCIDRs []string) []string {
	for _, cidr := range serviceCIDRs {
		r, err := netip.ParsePrefix(cidr)
		if err != nil {
			continue // checkNetwork has reported it
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

// containerAttribute returns the attribute of a journey's stage that names the container, if there is one.
func containerAttribute(name string) []journey.Attribute {
	if name == "" {
		return nil
	}
	return []journey.Attribute{{Key: "container", Value: name}}
}
