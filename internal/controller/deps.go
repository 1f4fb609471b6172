package controller

import (
	"log/slog"
	"time"

	"k8s.io/client-go/informers"

	"skiff/internal/client"
)

// Deps is what loops are made from.
type Deps struct {
	// Informers are shared by all loops; nobody changes what they hold.
	Informers informers.SharedInformerFactory
	// Client reads what informers are not for (discovery, metadata of any resource), as kube-controller-manager. Writes are actions.
	Client *client.Client
	Log    *slog.Logger
	Config Config
	// Metrics are for loops that have a queue of their own; may be nil.
	Metrics *Metrics
}

// Config are the settings of loops, by kube-controller-manager's flag names. Zero values are its defaults.
type Config struct {
	ClusterCIDRs         []string // --cluster-cidr: ranges of pod addresses; with AllocateNodeCIDRs
	AllocateNodeCIDRs    bool     // --allocate-node-cidrs
	NodeCIDRMaskSizeIPv4 int      // --node-cidr-mask-size-ipv4: 24
	ServiceCIDRs         []string // --service-cluster-ip-range

	NodeMonitorGracePeriod    Seconds // --node-monitor-grace-period: 50
	NodeMonitorPeriod         Seconds // --node-monitor-period: 5
	NodeEvictionRate          float32 // --node-eviction-rate: 0.1
	SecondaryNodeEvictionRate float32 // --secondary-node-eviction-rate: 0.01
	LargeClusterSizeThreshold int     // --large-cluster-size-threshold: 50
	UnhealthyZoneThreshold    float32 // --unhealthy-zone-threshold: 0.55

	TerminatedPodGCThreshold int    // --terminated-pod-gc-threshold: 12500
	RootCA                   []byte // --root-ca-file: the authority that pods trust
	MinResync                Seconds

	ClusterDNS        string // the address of the Service of the nodes' name servers; without one, nobody sees to it
	ClusterDNSPort    int    // where name servers listen on their nodes: 10053
	DisableClusterDNS bool   // the nodes run no name servers: somebody else may have their Service

	// SigningCertFile and SigningKeyFile are the authority that certificates are signed with: --cluster-signing-cert-file, --cluster-signing-key-file.
	// Without them none are.
	SigningCertFile, SigningKeyFile string
	SigningDuration                 Seconds // --cluster-signing-duration: a year

	ClusterDomain  string   // the DNS domain of the cluster
	APIServerHosts []string // names and addresses of the API, which no kubelet serves with

	ClusterInfo   string // a kubeconfig that tells everybody where the API is and whom to trust
	ClusterConfig string // what nodes have to know of how the cluster is laid out
}

// Seconds is a time; fractions are for tests.
type Seconds float64

// Set reads a flag, such as "40s".
func (s *Seconds) Set(text string) error {
	d, err := time.ParseDuration(text)
	*s = Seconds(d.Seconds())
	return err
}

// String is how a flag shows it.
func (s *Seconds) String() string { return time.Duration(float64(*s) * float64(time.Second)).String() }

// Type is what a flag's help calls it.
func (s *Seconds) Type() string { return "duration" }
