package cli

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"skiff/internal/cluster"
)

// addClusterFlags adds the flags that say which cluster a command is about.
func addClusterFlags(f *pflag.FlagSet, c *cluster.Config) {
	f.StringVar(&c.Name, "name", cluster.DefaultName, "name of the cluster, and of its context in kubeconfigs")
	f.StringVar(&c.DataDir, "data-dir", cluster.DefaultDataDir, "where the cluster's data is kept")
}

// addServerFlags adds the flags of a whole cluster in one process.
func addServerFlags(f *pflag.FlagSet, c *cluster.Config) {
	addClusterFlags(f, c)
	addAPIFlags(f, c)
	addServingFlags(f, c)
	addIdentityFlags(f, c)
	addControllerFlags(f, c)
	addSchedulerFlags(f, c, "scheduler-config")
	addPartFlags(f, c)
	addNodeFlags(f, c)
	addStoreFlags(f, c)
	f.BoolVar(&c.Encryption.Secrets, "encrypt-secrets", false, "encrypt Secrets in etcd with a key that is made in <data-dir>/encryption; from then on that is done as long as the key is there")
	f.IntVar(&c.Port, "port", cluster.DefaultPort, "port to serve the API on")
}

// addNodeFlags adds the flags of the node in the server's process; those that the kubelet has too have its names.
func addNodeFlags(f *pflag.FlagSet, c *cluster.Config) {
	n := &c.Node
	n.Run = true
	f.VarPF((*not)(&n.Run), "no-node", "", "run only the control plane").NoOptDefVal = "true"
	addKubeletFlags(f, n)
}

// addKubeletFlags adds the flags of the node, in the server's process or in the agent's.
func addKubeletFlags(f *pflag.FlagSet, n *cluster.NodeConfig) {
	f.StringVar(&n.Name, "node-name", "", "name of the node; the machine's if empty")
	f.StringVar(&n.Name, "hostname-override", "", "the same, as the kubelet calls it")
	f.StringVar(&n.IP, "node-ip", "", "address of the node; that of the interface with the default route if empty")
	f.StringToStringVar(&n.Labels, "node-labels", nil, "labels of the node")
	f.Var((*taints)(&n.Taints), "register-with-taints", "taints that the node registers with, such as KEY=VALUE:NoSchedule,...")
	f.IntVar(&n.Port, "kubelet-port", cluster.DefaultKubeletPort, "port of the kubelet")
	f.IntVar(&n.MaxPods, "max-pods", 110, "how many pods the node takes")
	f.StringVar(&n.RuntimeEndpoint, "container-runtime-endpoint", "", "CRI socket of another container runtime, such as unix:///run/crio/crio.sock; the bundled containerd if empty")
	f.StringVar(&n.RegistryAddress, "registry-address", cluster.DefaultRegistry, "loopback address of the image registry inside skiff; the credentials it asks for are in <data-dir>/registry")
}

// addAPIFlags adds flags of the API server, with Kubernetes' names.
func addAPIFlags(f *pflag.FlagSet, c *cluster.Config) {
	f.StringVar(&c.BindAddress, "bind-address", "", "address to serve the API on; all of the machine's if empty, or its loopback alone with --no-node")
	f.StringVar(&c.AdvertiseAddress, "advertise-address", "", "address at which members of the cluster reach the API; the bind address if empty")
	f.StringVar(&c.TLSCertFile, "tls-cert-file", "", "certificate to serve with; one of the cluster's own authority if empty")
	f.StringSliceVar(&c.TLSSANs, "tls-san", nil, "more names and addresses that the API is reached at, for its certificate")
	f.StringVar(&c.TLSKeyFile, "tls-private-key-file", "", "private key of --tls-cert-file")
	f.StringSliceVar(&c.ServiceCIDRs, "service-cluster-ip-range", []string{cluster.DefaultServiceCIDR}, "ranges of the services' cluster IPs")
	f.StringVar(&c.NodePortRange, "service-node-port-range", cluster.DefaultNodePorts, "range of the services' node ports")
	f.DurationVar(&c.EventTTL, "event-ttl", time.Hour, "how long events are kept")
	c.MaxInFlight, c.MaxMutatingInFlight = 400, 200
	f.Var((*limit)(&c.MaxInFlight), "max-requests-inflight", "how many requests may run at once, together with --max-mutating-requests-inflight; priority levels share them. Without --enable-priority-and-fairness: how many that read; no limit if 0")
	f.Var((*limit)(&c.MaxMutatingInFlight), "max-mutating-requests-inflight", "how many more requests may run at once. Without --enable-priority-and-fairness: how many that write; no limit if 0")
	f.VarPF((*not)(&c.NoFairness), "enable-priority-and-fairness", "", "queue requests by priority level and user, as FlowSchemas and PriorityLevelConfigurations say").NoOptDefVal = "true"
	f.DurationVar(&c.RequestTimeout, "request-timeout", time.Minute, "how long a request may take, unless it is long-running")
}

// addServingFlags adds the API server's flags about connections, with Kubernetes' names.
func addServingFlags(f *pflag.FlagSet, c *cluster.Config) {
	s, k := &c.Serving, &c.Kubelets
	f.StringVar(&s.TLSMinVersion, "tls-min-version", "", "oldest version of TLS that is spoken: VersionTLS10, VersionTLS11, VersionTLS12, VersionTLS13; VersionTLS12 if empty")
	f.StringSliceVar(&s.TLSCipherSuites, "tls-cipher-suites", nil, "cipher suites for TLS 1.2 and older, such as TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256; Go's choice if empty")
	f.Int32SliceVar(&s.TLSCurves, "tls-curve-preferences", nil, "key exchanges that are allowed, by the numbers of Go's tls.CurveID; Go's choice if empty")
	f.Var((*namedCertificates)(&s.NamedCertificates), "tls-sni-cert-key", "a certificate and its key for clients that ask for a name, such as foo.crt,foo.key or foo.crt,foo.key:*.foo.com,foo.com; may be given several times")
	f.IntVar(&s.MaxStreams, "http2-max-streams-per-connection", 0, "how many requests an HTTP/2 connection may have at once; 100 if 0")
	f.IntVar(&s.MaxConnections, "max-connections", 0, "how many connections to the API may be open; half of the files that the process may open, at most 32768, if 0")
	f.IntVar(&s.MaxConnectionsPerAddress, "max-connections-per-address", 0, "how many connections to the API one client address may have open; a sixty-fourth of all, at least 256, if 0. This machine's own addresses may have half of all")
	f.Float64Var(&s.Front.GoAwayChance, "goaway-chance", 0, "the part of requests after which an HTTP/2 client is to make a new connection, so that a load balancer may send it elsewhere: 0 to 0.02")
	f.StringSliceVar(&s.Front.AllowedOrigins, "cors-allowed-origins", nil, "regular expressions of the origins whose pages may use the API, such as '//example\\.com(:|$)'; none if empty")
	f.StringSliceVar(&s.Front.StrictTransport, "strict-transport-security-directives", nil, "what the header of that name says, such as max-age=31536000,includeSubDomains,preload; it is not sent if empty")
	f.StringVar(&s.ExternalHost, "external-hostname", "", "what clients elsewhere call the server; its advertised address if empty")
	f.DurationVar(&s.ShutdownDelay, "shutdown-delay-duration", 0, "how long to go on when told to end, with only /readyz saying so, for load balancers to notice")
	f.IntVar(&s.MinRequestTimeout, "min-request-timeout", 1800, "how many seconds a watch lasts at least, unless its client says how long; at most twice that")
	f.VarPF((*not)(&s.NoProfiling), "profiling", "", "serve /debug/pprof").NoOptDefVal = "true"
	f.StringVar(&k.CertFile, "kubelet-client-certificate", "", "certificate to show to kubelets; one of the cluster's own if empty")
	f.StringVar(&k.KeyFile, "kubelet-client-key", "", "private key of --kubelet-client-certificate")
	f.StringVar(&k.CAFile, "kubelet-certificate-authority", "", "authority that kubelets' certificates must be signed by; the cluster's own if empty")
	f.StringSliceVar(&k.AddressTypes, "kubelet-preferred-address-types", cluster.DefaultKubeletAddressTypes(), "which address of a node its kubelet is reached at: the first that it has")
	f.StringVar(&c.Aggregation.CertFile, "proxy-client-cert-file", "", "certificate to show to aggregated API servers, which trust the headers that name users for it; one of the cluster's own front-proxy authority if empty")
	f.StringVar(&c.Aggregation.KeyFile, "proxy-client-key-file", "", "private key of --proxy-client-cert-file")
	f.VarPF((*not)(&c.Aggregation.ForwardRedirects), "aggregator-reject-forwarding-redirect", "", "refuse redirects of aggregated API servers instead of forwarding them to clients").NoOptDefVal = "true"
}

// addIdentityFlags adds the API server's flags about authentication, authorization and admission, with Kubernetes' names.
func addIdentityFlags(f *pflag.FlagSet, c *cluster.Config) {
	c.Authentication = cluster.DefaultAuthentication()
	a := &c.Authentication
	f.BoolVar(&a.AnonymousAuth, "anonymous-auth", a.AnonymousAuth, "serve requests without credentials, as the user system:anonymous")
	track(f, &a.AnonymousAuthGiven, "anonymous-auth")
	addIssuerFlags(f, c)
	f.StringVar(&a.ClientCAFile, "client-ca-file", "", "authorities whose client certificates are recognized, besides the cluster's own")
	f.StringVar(&a.BasicAuthFile, "basic-auth-file", "", "file of users with passwords: password,user,uid,\"group,...\", as in Kubernetes until v1.18")
	f.StringVar(&a.TokenAuthFile, "token-auth-file", "", "file of static bearer tokens: token,user,uid,\"group,...\"")
	f.BoolVar(&a.EnableBootstrapTokenAuth, "enable-bootstrap-token-auth", a.EnableBootstrapTokenAuth, "recognize tokens in Secrets of type bootstrap.kubernetes.io/token in kube-system")
	f.StringSliceVar(&a.APIAudiences, "api-audiences", nil, "audiences of tokens for this server; its issuers if empty")
	f.StringArrayVar(&a.ServiceAccountIssuers, "service-account-issuer", a.ServiceAccountIssuers, "who issues tokens of service accounts; the first issues, all are recognized")
	f.StringArrayVar(&a.ServiceAccountKeyFiles, "service-account-key-file", nil, "keys that tokens of service accounts are verified with")
	f.StringVar(&a.ServiceAccountSigningKeyFile, "service-account-signing-key-file", "", "key that tokens of service accounts are signed with; the cluster's own if empty")
	f.BoolVar(&a.ServiceAccountLookup, "service-account-lookup", a.ServiceAccountLookup, "refuse tokens whose service account is gone")
	f.StringVar(&a.ServiceAccountJWKSURI, "service-account-jwks-uri", "", "where the keys of the issuer are published, if not on this server")
	f.DurationVar(&a.ServiceAccountMaxTokenExpiration, "service-account-max-token-expiration", 0, "the longest life of a token that may be asked for; no limit if 0")
	f.BoolVar(&a.ServiceAccountExtendTokenExpiration, "service-account-extend-token-expiration", a.ServiceAccountExtendTokenExpiration, "let tokens that pods get by themselves live a year, and warn of those used after an hour")
	f.StringVar(&a.RequestHeaderClientCAFile, "requestheader-client-ca-file", "", "authorities of front proxies; the cluster's own front-proxy authority if empty")
	f.StringSliceVar(&a.RequestHeaderAllowedNames, "requestheader-allowed-names", nil, "common names of front proxies; any if empty")
	f.StringSliceVar(&a.RequestHeader.User, "requestheader-username-headers", nil, "headers in which a front proxy names the user")
	f.StringSliceVar(&a.RequestHeader.UID, "requestheader-uid-headers", nil, "headers in which a front proxy names the user's uid")
	f.StringSliceVar(&a.RequestHeader.Group, "requestheader-group-headers", nil, "headers in which a front proxy names groups")
	f.StringSliceVar(&a.RequestHeader.ExtraPrefix, "requestheader-extra-headers-prefix", nil, "what headers begin with in which a front proxy says more of the user")
	addAuthorizationFlags(f, c)
	f.StringSliceVar(&c.EnableAdmission, "enable-admission-plugins", cluster.DefaultAdmission(),
		"admission plugins to turn on besides the default ones ("+strings.Join(cluster.DefaultAdmissionPlugins(), ", ")+"). There are: "+strings.Join(cluster.AdmissionPlugins(), ", "))
	f.StringSliceVar(&c.DisableAdmission, "disable-admission-plugins", nil, "admission plugins to turn off")
	f.StringVar(&c.AdmissionConfigFile, "admission-control-config-file", "", "file with an AdmissionConfiguration; these admission plugins take one: "+strings.Join(cluster.ConfigurableAdmissionPlugins(), ", "))
	c.InitialResources = cluster.DefaultInitialResources()
	f.IntVar(&c.InitialResources.Percentile, "ir-percentile", c.InitialResources.Percentile, "the percentile of what its image has used so far that the admission plugin InitialResources has a container request")
	f.BoolVar(&c.InitialResources.NamespaceOnly, "ir-namespace-only", false, "have InitialResources estimate from usage in the same namespace only")
	c.Tolerations = cluster.DefaultTolerations()
	t := c.Tolerations
	f.Int64Var(&t.NotReady, "default-not-ready-toleration-seconds", t.NotReady, "how long a pod that says nothing of it stays on a node that is not ready")
	f.Int64Var(&t.Unreachable, "default-unreachable-toleration-seconds", t.Unreachable, "how long a pod that says nothing of it stays on a node that is unreachable")
}

// addIssuerFlags adds the flags about authenticators that ask other servers.
func addIssuerFlags(f *pflag.FlagSet, c *cluster.Config) {
	a := &c.Authentication
	f.StringVar(&a.AuthenticationConfigFile, "authentication-config", "", "file with an AuthenticationConfiguration: the issuers of tokens that are recognized, and at which paths requests may be anonymous. Not with --oidc-* or, if it has anonymous, --anonymous-auth")
	o := &a.OIDC
	f.StringVar(&o.IssuerURL, "oidc-issuer-url", "", "https URL of an OpenID Connect issuer whose ID tokens are recognized")
	f.StringVar(&o.ClientID, "oidc-client-id", "", "audience of the tokens of --oidc-issuer-url")
	f.StringVar(&o.CAFile, "oidc-ca-file", "", "authorities of the issuer's certificate; the machine's if empty")
	f.StringVar(&o.UsernameClaim, "oidc-username-claim", o.UsernameClaim, "claim that is the user's name")
	f.StringVar(&o.UsernamePrefix, "oidc-username-prefix", "", "what is put before the name; the issuer's URL and # if empty, unless the claim is email, and nothing if -")
	f.StringVar(&o.GroupsClaim, "oidc-groups-claim", "", "claim that has the user's groups, or one of them; none if empty")
	f.StringVar(&o.GroupsPrefix, "oidc-groups-prefix", "", "what is put before groups")
	f.StringSliceVar(&o.SigningAlgs, "oidc-signing-algs", o.SigningAlgs, "signing algorithms that are accepted, of "+strings.Join(cluster.SigningAlgorithms(), ", "))
	f.Var((*pairs)(&o.RequiredClaims), "oidc-required-claim", "a claim=value that tokens must have; may be given several times")
	track(f, &o.Given, "oidc-issuer-url", "oidc-client-id", "oidc-ca-file", "oidc-username-claim", "oidc-username-prefix", "oidc-groups-claim", "oidc-groups-prefix",
		"oidc-signing-algs", "oidc-required-claim")
	f.StringVar(&a.WebhookConfigFile, "authentication-token-webhook-config-file", "", "kubeconfig of a server that is asked about bearer tokens which nobody else knows")
	f.StringVar(&a.WebhookVersion, "authentication-token-webhook-version", a.WebhookVersion, "version of the TokenReviews that it is sent: v1 or v1beta1")
	f.DurationVar(&a.WebhookCacheTTL, "authentication-token-webhook-cache-ttl", a.WebhookCacheTTL, "how long its answers are remembered")
}

// addAuthorizationFlags adds the API server's flags about authorization, with Kubernetes' names.
func addAuthorizationFlags(f *pflag.FlagSet, c *cluster.Config) {
	c.Authorization = cluster.DefaultAuthorization()
	a := &c.Authorization
	f.StringSliceVar(&a.Modes, "authorization-mode", a.Modes, "who decides, in order: "+strings.Join(cluster.AuthorizationModes(), ", "))
	f.StringVar(&a.PolicyFile, "authorization-policy-file", "", "file of policies for the mode ABAC: one in JSON per line")
	f.StringVar(&a.WebhookConfigFile, "authorization-webhook-config-file", "", "kubeconfig that says which server the mode Webhook asks, and as whom")
	f.StringVar(&a.WebhookVersion, "authorization-webhook-version", a.WebhookVersion, "version of the SubjectAccessReview of authorization.k8s.io that the mode Webhook sends: v1, v1beta1")
	f.DurationVar(&a.WebhookCacheAuthorizedTTL, "authorization-webhook-cache-authorized-ttl", a.WebhookCacheAuthorizedTTL, "how long answers of the webhook that allow are cached; not at all if 0")
	f.DurationVar(&a.WebhookCacheUnauthorizedTTL, "authorization-webhook-cache-unauthorized-ttl", a.WebhookCacheUnauthorizedTTL, "how long other answers of the webhook are cached; not at all if 0")
	f.StringVar(&a.ConfigFile, "authorization-config", "", "file with an AuthorizationConfiguration, which says who decides, in place of --authorization-mode and --authorization-webhook-*; it is loaded again when it changes")
	a.ModesGiven = func() bool {
		for _, name := range []string{"mode", "webhook-config-file", "webhook-version", "webhook-cache-authorized-ttl", "webhook-cache-unauthorized-ttl"} {
			if f.Changed("authorization-" + name) {
				return true
			}
		}
		return false
	}
}

// addControllerFlags adds kube-controller-manager's flags.
func addControllerFlags(f *pflag.FlagSet, c *cluster.Config) {
	l := &c.Loops
	l.NodeMonitorGracePeriod, l.NodeMonitorPeriod = 50, 5
	f.Var(&l.NodeMonitorGracePeriod, "node-monitor-grace-period", "how long a node may be silent before it is taken to be unwell")
	f.Var(&l.NodeMonitorPeriod, "node-monitor-period", "how often nodes are looked at")
	f.Float32Var(&l.NodeEvictionRate, "node-eviction-rate", 0.1, "how many nodes a second pods are evicted from when a zone is well")
	f.Float32Var(&l.SecondaryNodeEvictionRate, "secondary-node-eviction-rate", 0.01, "the same when a zone is unwell")
	f.IntVar(&l.LargeClusterSizeThreshold, "large-cluster-size-threshold", 50, "zones with no more nodes than this are small: nothing is evicted there while they are unwell")
	f.Float32Var(&l.UnhealthyZoneThreshold, "unhealthy-zone-threshold", 0.55, "the part of a zone's nodes that must be unready for it to be unwell")
	f.BoolVar(&l.AllocateNodeCIDRs, "allocate-node-cidrs", true, "give each node a range of pod addresses")
	f.StringSliceVar(&l.ClusterCIDRs, "cluster-cidr", nil, "ranges of pod addresses; "+cluster.DefaultPodCIDR+" if empty, or "+cluster.WidePodCIDR+" if there are many hollow nodes")
	f.IntVar(&l.NodeCIDRMaskSizeIPv4, "node-cidr-mask-size-ipv4", 24, "size of a node's range")
	l.SigningDuration = 365 * 24 * 60 * 60
	f.StringVar(&l.SigningCertFile, "cluster-signing-cert-file", "", "authority that certificates are signed with; the cluster's own if empty, in its server's process")
	f.StringVar(&l.SigningKeyFile, "cluster-signing-key-file", "", "its key")
	f.Var(&l.SigningDuration, "cluster-signing-duration", "how long certificates that are signed are good at most")
	f.IntVar(&l.TerminatedPodGCThreshold, "terminated-pod-gc-threshold", 12500, "how many pods that have ended are kept; all if not above 0")
	l.PodAutoscalerSyncPeriod, l.PodAutoscalerStabilization, l.PodAutoscalerCPUInitialization, l.PodAutoscalerReadinessDelay = 15, 300, 300, 30
	f.Var(&l.PodAutoscalerSyncPeriod, "horizontal-pod-autoscaler-sync-period", "how often each HorizontalPodAutoscaler is evaluated")
	f.Var(&l.PodAutoscalerStabilization, "horizontal-pod-autoscaler-downscale-stabilization", "how long a larger number of replicas that was proposed holds back scaling down, unless an autoscaler's behavior says otherwise")
	f.Var(&l.PodAutoscalerCPUInitialization, "horizontal-pod-autoscaler-cpu-initialization-period", "how long after a pod's start its CPU usage counts only if the pod is ready")
	f.Var(&l.PodAutoscalerReadinessDelay, "horizontal-pod-autoscaler-initial-readiness-delay", "changes of readiness so soon after a pod's start are taken for its first")
	f.Float64Var(&l.PodAutoscalerTolerance, "horizontal-pod-autoscaler-tolerance", 0.1, "by how much the ratio of usage to target may be off one before an autoscaler does anything")
	f.BoolVar(&l.DisableForceDetachOnTimeout, "disable-force-detach-on-timeout", false, "keep volumes attached that a node which is not ready has in use, until it has the taint out-of-service")
	f.StringSliceVar(&c.Controllers, "controllers", []string{"*"}, "control loops to run: * is all, NAME that one, -NAME not that one. There are: "+strings.Join(cluster.ControllerNames(), ", "))
}

// addSchedulerFlags adds kube-scheduler's flags; config is the name of its --config, which is another one where other components have flags too.
func addSchedulerFlags(f *pflag.FlagSet, c *cluster.Config, config string) {
	f.StringVar(&c.Scheduler.File, config, "", "file with a KubeSchedulerConfiguration for the scheduler")
	f.StringVar(&c.Scheduler.Name, "scheduler-name", "default-scheduler", "schedulerName of the pods that are scheduled, with --policy-config-file")
	f.StringVar(&c.Scheduler.PolicyFile, "policy-config-file", "", "file with predicates and priorities for the scheduler, the form that came before")
}

// addPartFlags adds the flags that say which parts run in the process.
func addPartFlags(f *pflag.FlagSet, c *cluster.Config) {
	f.StringSliceVar(&c.Disable, "disable", nil, "parts not to run: "+strings.Join(cluster.Parts, ", ")+" (local-storage is the default StorageClass, local)")
	f.StringVar(&c.Network.Overlay, "overlay", cluster.Overlays[0], "how pods of one node reach those of others: "+strings.Join(cluster.Overlays, ", ")+". host-gw is for nodes on one segment, udp for where nothing else works")
	f.StringVar(&c.Network.ProxyMode, "proxy-mode", cluster.ProxyModes[0], "how services are reached: "+strings.Join(cluster.ProxyModes, ", "))
	f.IntVar(&c.HollowNodes, "hollow-nodes", 0, "how many nodes to run that only pretend to run pods")
	f.DurationVar(&c.HollowReadyDelay, "hollow-ready-delay", 0, "how long pods on hollow nodes take to be ready")
}

// addStoreFlags adds the flags of the store.
func addStoreFlags(f *pflag.FlagSet, c *cluster.Config) {
	f.StringSliceVar(&c.EtcdServers, "etcd-servers", nil, "etcd servers to connect to; etcd runs inside skiff if empty")
	f.StringVar(&c.EtcdCAFile, "etcd-cafile", "", "authority that etcd certificates must be signed by")
	f.StringVar(&c.EtcdCertFile, "etcd-certfile", "", "certificate for etcd")
	f.StringVar(&c.EtcdKeyFile, "etcd-keyfile", "", "private key of --etcd-certfile")
	f.StringVar(&c.EtcdPrefix, "etcd-prefix", cluster.DefaultEtcdPrefix, "what all keys in etcd begin with")
	f.StringVar(&c.EtcdListen, "etcd-listen", "", "open the embedded etcd to clients such as etcdctl: unix:PATH, or https://LOOPBACK:PORT with --etcd-cafile, --etcd-certfile and --etcd-keyfile; no socket if empty")
	f.Int64Var(&c.EtcdQuotaBytes, "etcd-quota-backend-bytes", 0, "size at which the embedded etcd refuses to grow; etcd's default if 0")
	f.DurationVar(&c.EtcdCompactionInterval, "etcd-compaction-interval", 5*time.Minute, "how much history is kept for watches and paged lists")
	f.DurationVar(&c.EtcdHealthTimeout, "etcd-healthcheck-timeout", 2*time.Second, "how long etcd may take to say that it is well, for /healthz and /livez")
	f.DurationVar(&c.EtcdReadyTimeout, "etcd-readycheck-timeout", 2*time.Second, "the same for /readyz")
	f.StringVar(&c.Encryption.File, "encryption-provider-config", "", "file with an EncryptionConfiguration: which resources are encrypted in etcd, and how")
	f.BoolVar(&c.Encryption.Reload, "encryption-provider-config-automatic-reload", false, "apply the file of --encryption-provider-config when it changes")
	f.StringVar(&c.StorageMediaType, "storage-media-type", cluster.ProtobufMediaType, "how objects are stored: "+cluster.ProtobufMediaType+", or "+cluster.JSONMediaType+" to be able to read them")
}

// namedCertificates is a flag that may be given several times.
type namedCertificates []cluster.NamedCertificate

func (n *namedCertificates) Type() string { return "namedCertKey" }

func (n *namedCertificates) String() string {
	all := make([]string, len(*n))
	for i, one := range *n {
		all[i] = one.String()
	}
	return "[" + strings.Join(all, ";") + "]"
}

func (n *namedCertificates) Set(s string) error {
	one, err := cluster.ParseNamedCertificate(s)
	*n = append(*n, one)
	return err
}

// valuesOf returns the values of all flags of a command, as /flagz shows them.
func valuesOf(f *pflag.FlagSet) map[string]string {
	values := map[string]string{}
	f.VisitAll(func(flag *pflag.Flag) { values[flag.Name] = flag.Value.String() })
	delete(values, "help")
	return values
}

// limit is a flag for a number that may be 0, which the configuration has as -1, as its zero value stands for the default.
type limit int

func (l *limit) String() string { return strconv.Itoa(max(int(*l), 0)) }
func (l *limit) Type() string   { return "int" }
func (l *limit) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err == nil && n < 0 {
		err = errors.New("it can not be negative value")
	}
	if *l = limit(n); n == 0 {
		*l = -1
	}
	return err
}

// not is a boolean flag that sets the opposite of its value.
type not bool

func (n *not) String() string { return strconv.FormatBool(!bool(*n)) }
func (n *not) Type() string   { return "bool" }
func (n *not) Set(s string) error {
	v, err := strconv.ParseBool(s)
	*n = not(!v)
	return err
}
