package cli

import (
	"log/slog"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"skiff/internal/cluster"
)

func proxyCommand() *cobra.Command {
	var c cluster.ProxyConfig
	var cleanup bool
	cmd := &cobra.Command{
		Use: "proxy", Short: "Run the service proxy alone, with Kubernetes' own flag names", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cleanup {
				return cluster.CleanProxy()
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			c.Log = slog.Default()
			return cluster.RunProxy(ctx, c)
		},
	}
	showVersion(cmd)
	f := cmd.Flags()
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "how to reach the API")
	f.StringVar(&c.NodeName, "hostname-override", "", "name of the node; the machine's if empty")
	f.StringVar(&c.BindAddress, "bind-address", "", "the node's address; what the Node object says if empty or 0.0.0.0")
	f.StringVar(&c.Mode, "proxy-mode", "nftables", "how: nftables, iptables or userspace")
	f.StringSliceVar(&c.ClusterCIDRs, "cluster-cidr", nil, "ranges of pods' addresses, on all nodes")
	f.StringSliceVar(&c.NodePortAddresses, "nodeport-addresses", nil, "ranges of the node's addresses at which node ports answer; \"primary\", which is the default, is the node's own")
	f.BoolVar(&c.MasqueradeAll, "masquerade-all", false, "masquerade all that goes to cluster IPs")
	f.UintVar(&c.MasqueradeBit, "iptables-masquerade-bit", 14, "bit of the packet mark that says that a packet is to be masqueraded")
	f.DurationVar(&c.NFTables.MinPeriod, "nftables-min-sync-period", 0, "least time between two changes of rules; 0 is a tenth of a second, or more if changes take long")
	f.DurationVar(&c.IPTables.MinPeriod, "iptables-min-sync-period", time.Second, "the same with --proxy-mode iptables")
	f.DurationVar(&c.NFTables.Period, "nftables-sync-period", 30*time.Second, "how often rules are looked at")
	f.DurationVar(&c.IPTables.Period, "iptables-sync-period", 30*time.Second, "the same with --proxy-mode iptables")
	f.StringVar(&c.HealthzAddress, "healthz-bind-address", "0.0.0.0:10256", "where to answer /healthz and /livez; nowhere if empty")
	f.StringVar(&c.MetricsAddress, "metrics-bind-address", "127.0.0.1:10249", "where to answer /metrics; nowhere if empty")
	f.BoolVar(&cleanup, "cleanup", false, "remove all rules of the service proxy and end")
	return cmd
}
