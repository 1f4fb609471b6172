package apiserver

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/admission/defaulttolerationseconds"
	"skiff/internal/apiserver/admission/initialresources"
	authnconfig "skiff/internal/apiserver/authn/config"
	"skiff/internal/apiserver/authz"
	authzconfig "skiff/internal/apiserver/authz/config"
	"skiff/internal/apiserver/front"
	"skiff/internal/journey"
	"skiff/internal/store"
	"skiff/internal/usage"
	"skiff/internal/usage/history"
)

// Options are the options of a server. Store is required; the zero values of the others mean upstream's defaults.
type Options struct {
	Store store.Store
	// StoreHealthy returns why the store cannot be written to, or nil. Without it the store counts as healthy.
	StoreHealthy func(context.Context) error
	// StoreUsage returns how full the database of the store is. Without it that is not reported.
	StoreUsage  func(context.Context) (StoreUsage, error)
	UsageEvery  time.Duration // how often StoreUsage is called: 30 s
	EtcdPrefix  string        // with which all keys begin: /registry
	StorageJSON bool          // store objects as JSON instead of protobuf
	EventTTL    time.Duration
	// EncryptionFile is the path of an EncryptionConfiguration; empty if nothing is encrypted. It is read again when it changes if ReloadEncryption is set.
	EncryptionFile        string
	ReloadEncryption      bool
	ReloadEncryptionEvery time.Duration // how often the file is read: a minute
	// RewriteSecrets has the server write Secrets again that are not encrypted with the first key, when it starts and when EncryptionFile has changed.
	RewriteSecrets bool

	Authentication authnconfig.Options
	// Authorization has the authorizers, in the order in which they are asked: AlwaysAllow if there are none.
	Authorization authzconfig.Options
	Authorizer    authz.Authorizer // used instead of Authorization if set
	// AggregateRoles has the server write the rules of ClusterRoles that have an aggregationRule.
	AggregateRoles bool
	// CheckPolicyTypes has the server write into the status of ValidatingAdmissionPolicies what is wrong with the types of their expressions.
	CheckPolicyTypes bool
	// EnableAdmission and DisableAdmission are the admission plugins to turn on and off, beside the defaults.
	EnableAdmission, DisableAdmission []string
	// AdmissionConfigFile is the path of an AdmissionConfiguration for the plugins; empty if there is none.
	AdmissionConfigFile string

	ServiceCIDRs  []string // 10.43.0.0/16
	NodePortRange string   // 30000-32767
	// AdvertiseAddress and Port are the endpoint of the service "kubernetes".
	AdvertiseAddress string
	Port             int
	// ExternalHost is the host at which clients outside of the cluster reach the server, if not AdvertiseAddress.
	ExternalHost string
	Front        FrontOptions

	// KubeletTLS returns the client certificate for kubelets and how theirs is verified. It is called for each connection, as certificates are
	// renewed. Without it no certificate is sent or verified.
	KubeletTLS func() (*tls.Config, error)
	// KubeletAddresses are the types of a node's addresses to try for its kubelet, in order.
	KubeletAddresses []corev1.NodeAddressType

	// ProxyClientCertificate returns the certificate by which aggregated API servers recognize this server as a front proxy. It is called for each connection, as
	// certificates are renewed. Without it no certificate is sent.
	ProxyClientCertificate func() (*tls.Certificate, error)
	// ForwardRedirects has redirects of aggregated API servers forwarded to clients instead of refused.
	ForwardRedirects bool

	// Dial connects to kubelets, pods and services; directly if nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Tunnel takes over a connection that a node opens to be reached through it. Without it nodes cannot open tunnels.
	Tunnel func(w http.ResponseWriter, r *http.Request, node string)

	// ResourceMetrics has the server answer metrics.k8s.io by asking nodes. Without it another server can, as an aggregated API.
	ResourceMetrics bool
	// LocalUsage returns what a node of this process and its containers have used; nil for a node whose kubelet is to be asked. It may be nil.
	LocalUsage func(node string) *usage.Reading
	// UsageHistory remembers what containers have used whenever that is measured, and measures it for the admission plugin InitialResources. It may be nil.
	UsageHistory *history.History

	// MaxInFlight and MaxMutatingInFlight together are how many requests execute at once, apart from those that flowcontrol exempts: 400 and 200. A negative number is 0.
	MaxInFlight, MaxMutatingInFlight int
	// NoFairness has MaxInFlight bound the requests that read and MaxMutatingInFlight those that write, whosever they are; a negative number is no bound. There are no
	// priority levels then.
	NoFairness bool
	// FairnessRestoreEvery is how long after a change to a FlowSchema or PriorityLevelConfiguration those that every cluster has are restored: a minute.
	FairnessRestoreEvery time.Duration
	RequestTimeout       time.Duration
	// MinWatch is how long a watch without timeoutSeconds lasts at least: half an hour. It lasts up to twice as long, at random, so that not all
	// watchers reconnect at once.
	MinWatch time.Duration
	// StoreHealthTimeout and StoreReadyTimeout are how long StoreHealthy may take for the checks etcd and etcd-readiness: 2 s.
	StoreHealthTimeout, StoreReadyTimeout time.Duration
	// Tolerations are how long pods stay on nodes that are not ready or unreachable; 300 s each if nil.
	Tolerations *defaulttolerationseconds.Options
	// InitialResources are how the admission plugin InitialResources estimates; upstream's defaults if nil.
	InitialResources *initialresources.Options
	NoProfiling      bool // do not serve /debug/pprof
	// Flags are what /flagz shows: the values of the flags of the command line, by name.
	Flags   map[string]string
	Journey *journey.Recorder
	// Seen is called for every request, over the network or in process, with what is asked for and by whom; for tests.
	Seen func(*http.Request, *authz.Attributes)
	// GuardShared is called when a component has changed a shared object; for tests.
	GuardShared func(problem string)
	Log         *slog.Logger
}

// complete sets the defaults of options that are not set.
func (o *Options) complete() {
	if o.EtcdPrefix == "" {
		o.EtcdPrefix = "/registry"
	}
	if o.EventTTL == 0 {
		o.EventTTL = time.Hour
	}
	if len(o.Authorization.Modes) == 0 && o.Authorization.ConfigFile == "" {
		o.Authorization.Modes = []string{authz.ModeAlwaysAllow}
	}
	if len(o.ServiceCIDRs) == 0 {
		o.ServiceCIDRs = []string{"10.43.0.0/16"}
	}
	if o.NodePortRange == "" {
		o.NodePortRange = "30000-32767"
	}
	if o.MaxInFlight == 0 {
		o.MaxInFlight = 400
	}
	if o.MaxMutatingInFlight == 0 {
		o.MaxMutatingInFlight = 200
	}
	o.MaxInFlight, o.MaxMutatingInFlight = max(o.MaxInFlight, 0), max(o.MaxMutatingInFlight, 0)
	if o.RequestTimeout == 0 {
		o.RequestTimeout = time.Minute
	}
	if o.MinWatch == 0 {
		o.MinWatch = 30 * time.Minute
	}
	if o.StoreHealthTimeout == 0 {
		o.StoreHealthTimeout = 2 * time.Second
	}
	if o.StoreReadyTimeout == 0 {
		o.StoreReadyTimeout = 2 * time.Second
	}
	if o.InitialResources == nil {
		o.InitialResources = &initialresources.Defaults
	}
	if o.Tolerations == nil {
		o.Tolerations = &defaulttolerationseconds.Defaults
	}
	if len(o.KubeletAddresses) == 0 {
		o.KubeletAddresses = DefaultKubeletAddresses()
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
}

// FrontOptions decide which headers for browsers and load balancers every response has.
type FrontOptions = front.HeaderOptions

// DefaultKubeletAddresses returns the types of a node's addresses in the order in which they are tried. Names come last, as nothing in the cluster
// resolves them for this server.
func DefaultKubeletAddresses() []corev1.NodeAddressType {
	return []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeHostName, corev1.NodeInternalDNS, corev1.NodeExternalDNS}
}
