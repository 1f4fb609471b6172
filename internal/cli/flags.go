package cli

import (
	"time"

	"github.com/spf13/pflag"

	"skiff/internal/cluster"
)

// addClusterFlags are the flags that say which cluster a command is about.
func addClusterFlags(f *pflag.FlagSet, c *cluster.Config) {
	f.StringVar(&c.Name, "name", cluster.DefaultName, "name of the cluster, and of its context in kubeconfigs")
	f.StringVar(&c.DataDir, "data-dir", cluster.DefaultDataDir, "where the cluster's data is kept")
}

// addAPIFlags are the API server's flags, with Kubernetes' names.
func addAPIFlags(f *pflag.FlagSet, c *cluster.Config) {
	f.StringVar(&c.BindAddress, "bind-address", "127.0.0.1", "address to serve the API on")
	f.StringVar(&c.AdvertiseAddress, "advertise-address", "", "address at which members of the cluster reach the API; the bind address if empty")
	f.StringVar(&c.TLSCertFile, "tls-cert-file", "", "certificate to serve with; one of the cluster's own authority if empty")
	f.StringVar(&c.TLSKeyFile, "tls-private-key-file", "", "private key of --tls-cert-file")
	f.StringSliceVar(&c.ServiceCIDRs, "service-cluster-ip-range", []string{cluster.DefaultServiceCIDR}, "ranges of the services' cluster IPs")
	f.StringVar(&c.NodePortRange, "service-node-port-range", cluster.DefaultNodePorts, "range of the services' node ports")
	f.DurationVar(&c.EventTTL, "event-ttl", time.Hour, "how long events are kept")
	f.IntVar(&c.MaxInFlight, "max-requests-inflight", 400, "how many reads may run at once")
	f.IntVar(&c.MaxMutatingInFlight, "max-mutating-requests-inflight", 200, "how many writes may run at once")
	f.DurationVar(&c.RequestTimeout, "request-timeout", time.Minute, "how long a request may take, unless it is long-running")
}

// addStoreFlags say where state is kept.
func addStoreFlags(f *pflag.FlagSet, c *cluster.Config) {
	f.StringSliceVar(&c.EtcdServers, "etcd-servers", nil, "etcd servers to connect to; etcd runs inside skiff if empty")
	f.StringVar(&c.EtcdCAFile, "etcd-cafile", "", "authority that etcd certificates must be signed by")
	f.StringVar(&c.EtcdCertFile, "etcd-certfile", "", "certificate for etcd")
	f.StringVar(&c.EtcdKeyFile, "etcd-keyfile", "", "private key of --etcd-certfile")
	f.StringVar(&c.EtcdPrefix, "etcd-prefix", cluster.DefaultEtcdPrefix, "what all keys in etcd begin with")
	f.StringVar(&c.EtcdListen, "etcd-listen", "", "open the embedded etcd to clients such as etcdctl: unix:PATH, or https://LOOPBACK:PORT with --etcd-cafile, --etcd-certfile and --etcd-keyfile; no socket if empty")
	f.Int64Var(&c.EtcdQuotaBytes, "etcd-quota-backend-bytes", 0, "size at which the embedded etcd refuses to grow; etcd's default if 0")
	f.DurationVar(&c.EtcdCompactionInterval, "etcd-compaction-interval", 5*time.Minute, "how much history is kept for watches and paged lists")
	f.StringVar(&c.StorageMediaType, "storage-media-type", cluster.ProtobufMediaType, "how objects are stored: "+cluster.ProtobufMediaType+", or "+cluster.JSONMediaType+" to be able to read them")
}
