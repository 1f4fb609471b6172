package cli

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"skiff/internal/cluster"
	"skiff/internal/network/proxy"
)

func proxyCommand() *cobra.Command {
	var (
		o                                  proxy.Options
		kubeconfig, nodeIP                 string
		clusterCIDRs, nodePorts            []string
		cleanup                            bool
		minNFT, minTables, syncNFT, syncIP time.Duration
	)
	cmd := &cobra.Command{
		Use: "proxy", Short: "Run the service proxy alone, with Kubernetes' own flag names", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cleanup {
				return proxy.Clean()
			}
			var err error
			if o.ClusterCIDRs, err = ranges("cluster-cidr", clusterCIDRs); err != nil {
				return err
			}
			if o.NodePortAddresses, err = nodePortRanges(nodePorts); err != nil {
				return err
			}
			if nodeIP != "" {
				a, err := netip.ParseAddr(nodeIP)
				if err != nil {
					return fmt.Errorf("--bind-address: %w", err)
				}
				if !a.IsUnspecified() {
					o.NodeIPs = []netip.Addr{a}
				}
			}
			if o.NodeName == "" {
				if o.NodeName, err = os.Hostname(); err != nil {
					return err
				}
				o.NodeName = strings.ToLower(o.NodeName)
			}
			o.MinSyncPeriod, o.SyncPeriod = minNFT, syncNFT
			if o.Mode == "iptables" {
				o.MinSyncPeriod, o.SyncPeriod = minTables, syncIP
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			o.Log = slog.Default()
			return cluster.RunProxy(ctx, kubeconfig, o)
		},
	}
	showVersion(cmd)
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "how to reach the API")
	f.StringVar(&o.NodeName, "hostname-override", "", "name of the node; the machine's if empty")
	f.StringVar(&nodeIP, "bind-address", "", "the node's address; what the Node object says if empty or 0.0.0.0")
	f.StringVar(&o.Mode, "proxy-mode", "nftables", "how: nftables, iptables or userspace")
	f.StringSliceVar(&clusterCIDRs, "cluster-cidr", nil, "ranges of pods' addresses, on all nodes")
	f.StringSliceVar(&nodePorts, "nodeport-addresses", nil, "ranges of the node's addresses at which node ports answer; \"primary\", which is the default, is the node's own")
	f.BoolVar(&o.MasqueradeAll, "masquerade-all", false, "masquerade all that goes to cluster IPs")
	f.UintVar(&o.MasqueradeBit, "iptables-masquerade-bit", 14, "bit of the packet mark that says that a packet is to be masqueraded")
	f.DurationVar(&minNFT, "nftables-min-sync-period", 0, "least time between two changes of rules; 0 is a tenth of a second, or more if changes take long")
	f.DurationVar(&minTables, "iptables-min-sync-period", time.Second, "the same with --proxy-mode iptables")
	f.DurationVar(&syncNFT, "nftables-sync-period", 30*time.Second, "how often rules are looked at")
	f.DurationVar(&syncIP, "iptables-sync-period", 30*time.Second, "the same with --proxy-mode iptables")
	f.StringVar(&o.HealthzAddress, "healthz-bind-address", "0.0.0.0:10256", "where to answer /healthz and /livez; nowhere if empty")
	f.StringVar(&o.MetricsAddress, "metrics-bind-address", "127.0.0.1:10249", "where to answer /metrics; nowhere if empty")
	f.BoolVar(&cleanup, "cleanup", false, "remove all rules of the service proxy and end")
	return cmd
}

// nodePortRanges knows the word "primary", which is what is taken without any range.
func nodePortRanges(list []string) ([]netip.Prefix, error) {
	if len(list) == 1 && list[0] == "primary" {
		return nil, nil
	}
	return ranges("nodeport-addresses", list)
}

func ranges(flag string, list []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, s := range list {
		p, err := netip.ParsePrefix(strings.TrimSpace(s))
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}
