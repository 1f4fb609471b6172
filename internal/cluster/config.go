package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"skiff/internal/apiserver/admission/defaulttolerationseconds"
	"skiff/internal/apiserver/admission/initialresources"
	authnconfig "skiff/internal/apiserver/authn/config"
	"skiff/internal/apiserver/authz"
	authzconfig "skiff/internal/apiserver/authz/config"
	"skiff/internal/cluster/pki"
	"skiff/internal/controller"
)

// Config configures a server. The zero value of a field means its default.
type Config struct {
	Name    string
	DataDir string

	BindAddress      string
	Port             int
	AdvertiseAddress string
	TLSCertFile      string
	TLSKeyFile       string
	TLSSANs          []string // more names and addresses for the API's certificate
	Serving          ServingConfig
	Kubelets         KubeletClientConfig
	Aggregation      AggregationConfig
	ServiceCIDRs     []string
	NodePortRange    string

	Authentication                    authnconfig.Options
	Authorization                     authzconfig.Options
	EnableAdmission, DisableAdmission []string
	AdmissionConfigFile               string // path of an AdmissionConfiguration
	// Tolerations say for how long pods stay on nodes that are not ready or unreachable; 300 s each if nil.
	Tolerations *defaulttolerationseconds.Options
	// InitialResources are how the admission plugin InitialResources estimates; upstream's defaults if nil.
	InitialResources *initialresources.Options

	// EtcdServers are the endpoints of an etcd cluster to use instead of the embedded one.
	EtcdServers                           []string
	EtcdCAFile, EtcdCertFile, EtcdKeyFile string
	EtcdPrefix                            string
	EtcdListen                            string
	EtcdQuotaBytes                        int64
	EtcdCompactionInterval                time.Duration
	StorageMediaType                      string
	Encryption                            EncryptionConfig
	EventTTL                              time.Duration
	MaxInFlight, MaxMutatingInFlight      int  // -1 is no limit with NoFairness, and 0 without; 400 and 200 if 0
	NoFairness                            bool // FlowSchemas and PriorityLevelConfigurations have no effect
	RequestTimeout                        time.Duration
	EtcdHealthTimeout, EtcdReadyTimeout   time.Duration
	// Controllers are the control loops to run in this process, as --controllers has them; none if empty.
	Controllers []string
	Loops       controller.Config // of the control loops
	Scheduler   SchedulerConfig
	Disable     []string // Parts not to run
	Network     NetworkConfig
	// HollowNodes is how many nodes to run that only pretend to run pods; HollowReadyDelay is how long their pods take to be ready.
	HollowNodes      int
	HollowReadyDelay time.Duration
	Node             NodeConfig
	// Seen is called with every request and its attributes; for tests.
	Seen func(*http.Request, *authz.Attributes)
	// Flags are the flags that /flagz shows.
	Flags map[string]string
	Log   *slog.Logger
}

// NodeConfig configures the node on this machine, in the server's process or in the agent's.
type NodeConfig struct {
	Run     bool
	Name    string // the machine's host name, if empty
	IP      string
	Labels  map[string]string
	Taints  []corev1.Taint // taints that the node registers with
	Port    int            // the kubelet's port
	MaxPods int
	// RuntimeEndpoint is the CRI socket of a container runtime; the bundled one, if empty.
	RuntimeEndpoint string
	// RegistryAddress is the address that the image registry inside skiff listens on.
	RegistryAddress string
}

// The defaults a user relies on.
const (
	DefaultName        = "skiff"
	DefaultDataDir     = "/var/lib/skiff"
	DefaultPort        = 6443
	DefaultRegistry    = "127.0.0.1:6500"
	DefaultKubeletPort = 10250
	DefaultServiceCIDR = "10.43.0.0/16"
	DefaultPodCIDR     = "10.42.0.0/16"
	WidePodCIDR        = "10.128.0.0/9" // if there are too many hollow nodes for DefaultPodCIDR
	DefaultNodePorts   = "30000-32767"
	DefaultEtcdPrefix  = "/registry"
	JSONMediaType      = "application/json"
	ProtobufMediaType  = "application/vnd.kubernetes.protobuf"
	clusterDomain      = "cluster.local"
)

// Complete fills in defaults and returns an error for what is invalid.
func (c *Config) Complete() error {
	orDefault(&c.Name, DefaultName)
	orDefault(&c.DataDir, DefaultDataDir)
	if err := checkParts(c.Disable, Parts); err != nil {
		return err
	}
	c.Network = c.Network.withDisabled(slices.DeleteFunc(slices.Clone(c.Disable), func(part string) bool { return !slices.Contains(NodeParts, part) }))
	if c.Node.Run {
		if err := c.Node.complete(); err != nil {
			return err
		}
		orDefault(&c.BindAddress, "0.0.0.0") // pods must reach it
		orDefault(&c.AdvertiseAddress, c.Node.IP)
	}
	orDefault(&c.BindAddress, "127.0.0.1")
	orDefault(&c.NodePortRange, DefaultNodePorts)
	orDefault(&c.EtcdPrefix, DefaultEtcdPrefix)
	orDefault(&c.StorageMediaType, ProtobufMediaType)
	if c.Port == 0 {
		c.Port = DefaultPort
	}
	if len(c.Authentication.ServiceAccountIssuers) == 0 {
		c.Authentication = DefaultAuthentication()
	}
	if len(c.Authorization.Modes) == 0 && c.Authorization.ConfigFile == "" {
		c.Authorization.Modes = DefaultAuthorization().Modes
	}
	if c.EnableAdmission == nil {
		c.EnableAdmission = DefaultAdmission()
	}
	if len(c.ServiceCIDRs) == 0 {
		c.ServiceCIDRs = []string{DefaultServiceCIDR}
	}
	c.completePodCIDRs()
	if c.EtcdCompactionInterval == 0 {
		c.EtcdCompactionInterval = 5 * time.Minute
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	var err error
	if c.DataDir, err = filepath.Abs(c.DataDir); err != nil {
		return err
	}
	return c.check()
}

// completePodCIDRs sets the default ranges of pod addresses. Many hollow nodes need more than DefaultPodCIDR has room for; as their pods do not exist, a wide
// range costs nothing.
func (c *Config) completePodCIDRs() {
	l := &c.Loops
	if len(l.ClusterCIDRs) > 0 {
		return
	}
	l.ClusterCIDRs = []string{DefaultPodCIDR}
	const defaultBits, nodeBits = 16, 24                                                                     // prefix lengths of DefaultPodCIDR and of a node's range
	if nodes := 1 << max(cmp.Or(l.NodeCIDRMaskSizeIPv4, nodeBits)-defaultBits, 0); c.HollowNodes > nodes/2 { // half is left for other nodes
		l.ClusterCIDRs = []string{WidePodCIDR}
	}
}

func (c *Config) check() error {
	ip := net.ParseIP(c.BindAddress)
	switch {
	case ip == nil:
		return fmt.Errorf("--bind-address %q is not an IP address", c.BindAddress)
	case c.Port < 1 || c.Port > 65535:
		return fmt.Errorf("the port %d is not between 1 and 65535", c.Port)
	case c.MaxInFlight < 0 && c.MaxMutatingInFlight < 0 && !c.NoFairness:
		return errors.New("--max-requests-inflight and --max-mutating-requests-inflight must add up to something positive")
	case (c.TLSCertFile == "") != (c.TLSKeyFile == ""):
		return fmt.Errorf("--tls-cert-file and --tls-private-key-file go together")
	case c.StorageMediaType != JSONMediaType && c.StorageMediaType != ProtobufMediaType:
		return fmt.Errorf("--storage-media-type %q is neither %s nor %s", c.StorageMediaType, JSONMediaType, ProtobufMediaType)
	case c.EtcdPrefix[0] != '/' || len(c.EtcdPrefix) == 1 || c.EtcdPrefix[len(c.EtcdPrefix)-1] == '/':
		return fmt.Errorf("--etcd-prefix %q must begin with a slash and not end with one", c.EtcdPrefix)
	}
	if c.AdvertiseAddress == "" {
		c.AdvertiseAddress = c.BindAddress
		if host, err := utilnet.ResolveBindAddress(ip); err == nil {
			c.AdvertiseAddress = host.String() // other machines cannot reach loopback
		}
	}
	if net.ParseIP(c.AdvertiseAddress) == nil {
		return fmt.Errorf("--advertise-address %q is not an IP address", c.AdvertiseAddress)
	}
	for _, host := range c.TLSSANs {
		if err := pki.CheckHost(host); err != nil {
			return fmt.Errorf("--tls-san: %w", err)
		}
	}
	return errors.Join(c.Authorization.Check(), c.Serving.check(), c.Kubelets.check(), c.Aggregation.check(), c.Encryption.check(), c.checkNetwork())
}

func orDefault(s *string, value string) {
	if *s == "" {
		*s = value
	}
}
