package controller

import (
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"

	"skiff/internal/client"
)

// Deps holds what loops are built from.
type Deps struct {
	// Informers are shared by all loops; their objects must not be modified.
	Informers informers.SharedInformerFactory
	// Client reads what has no informer (discovery, metadata of any resource) as kube-controller-manager. Writes are Actions.
	Client *client.Client
	Log    *slog.Logger
	Config Config
	// Metrics is for loops that run queues beside the one that the Manager gives them; may be nil.
	Metrics *Metrics
}

// Config holds the settings of loops, by kube-controller-manager's flag names. Zero values mean its defaults.
type Config struct {
	ClusterCIDRs         []string // --cluster-cidr: ranges of pod addresses; used if AllocateNodeCIDRs is set
	AllocateNodeCIDRs    bool     // --allocate-node-cidrs
	NodeCIDRMaskSizeIPv4 int      // --node-cidr-mask-size-ipv4: 24
	ServiceCIDRs         []string // --service-cluster-ip-range

	NodeMonitorGracePeriod    Seconds // --node-monitor-grace-period: 50
	NodeMonitorPeriod         Seconds // --node-monitor-period: 5
	NodeEvictionRate          float32 // --node-eviction-rate: 0.1
	SecondaryNodeEvictionRate float32 // --secondary-node-eviction-rate: 0.01
	LargeClusterSizeThreshold int     // --large-cluster-size-threshold: 50
	UnhealthyZoneThreshold    float32 // --unhealthy-zone-threshold: 0.55

	TerminatedPodGCThreshold int // --terminated-pod-gc-threshold: 12500
	// Autoscaling: --horizontal-pod-autoscaler-sync-period: 15, -downscale-stabilization: 300, -cpu-initialization-period: 300, -initial-readiness-delay: 30, -tolerance: 0.1
	PodAutoscalerSyncPeriod, PodAutoscalerStabilization, PodAutoscalerCPUInitialization, PodAutoscalerReadinessDelay Seconds
	PodAutoscalerTolerance                                                                                           float64
	// DisableForceDetachOnTimeout leaves a volume attached that a node which is not ready has in use: --disable-force-detach-on-timeout.
	DisableForceDetachOnTimeout bool

	RootCA    []byte // --root-ca-file: the certificate authority that pods trust
	MinResync Seconds

	// LegacyToken makes the token for a Secret of type kubernetes.io/service-account-token; without it no such tokens are made.
	LegacyToken func(*corev1.ServiceAccount, *corev1.Secret) (string, error)

	ClusterDNS        string // address of the DNS Service; empty: no loop manages that Service
	ClusterDNSPort    int    // port that name servers listen on on their nodes: 10053
	DisableClusterDNS bool   // nodes run no name servers, so the DNS Service is left to others

	// SigningCertFile and SigningKeyFile hold the authority that signs certificates: --cluster-signing-cert-file, --cluster-signing-key-file.
	// Without them no certificates are signed.
	SigningCertFile, SigningKeyFile string
	SigningDuration                 Seconds // --cluster-signing-duration: a year

	ClusterDomain  string   // the DNS domain of the cluster
	APIServerHosts []string // names and addresses of the API server, which no kubelet may get a serving certificate for

	// DisableLocalStorage leaves out the default StorageClass "local", and creates no volumes of its provisioner.
	DisableLocalStorage bool

	ClusterInfo   string // kubeconfig with the API server's address and certificate authority, published for joining nodes
	ClusterConfig string // cluster settings published for joining nodes
}

// Seconds is a duration in seconds; fractions are for tests.
type Seconds float64

// Set parses a flag value such as "40s".
func (s *Seconds) Set(text string) error {
	d, err := time.ParseDuration(text)
	*s = Seconds(d.Seconds())
	return err
}

// String returns the duration as flags print it.
func (s *Seconds) String() string { return time.Duration(float64(*s) * float64(time.Second)).String() }

// Type returns what a flag's help calls the type.
func (s *Seconds) Type() string { return "duration" }
