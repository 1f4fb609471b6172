package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"skiff/internal/client"
	"skiff/internal/cluster/memory"
	"skiff/internal/network/proxy"
)

// ProxyConfig is a service proxy in a process of its own: kube-proxy's flags.
type ProxyConfig struct {
	Kubeconfig                     string
	NodeName                       string // the machine's host name, if empty
	BindAddress                    string // the node's address; what the Node object says, if empty or unspecified
	Mode                           string // nftables, iptables or userspace
	ClusterCIDRs                   []string
	NodePortAddresses              []string // "primary" alone is the node's own address, as an empty list is
	MasqueradeAll                  bool
	MasqueradeBit                  uint
	NFTables, IPTables             ProxySync
	HealthzAddress, MetricsAddress string // nowhere, if empty
	Log                            *slog.Logger
}

// ProxySync is how often a mode of the service proxy changes its rules at most, and checks all of them at least.
type ProxySync struct{ MinPeriod, Period time.Duration }

// RunProxy runs the service proxy of this machine against a server elsewhere, until ctx ends.
func RunProxy(ctx context.Context, config ProxyConfig) error {
	o, err := config.options()
	if err != nil {
		return err
	}
	if config.Kubeconfig == "" {
		return errors.New("--kubeconfig says how to reach the API; it is needed")
	}
	if o.Client, err = client.ForKubeconfig(config.Kubeconfig, "kube-proxy"); err != nil {
		return err
	}
	p, err := proxy.New(o)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	running.Go(func() { memory.TuneSmall(ctx) })
	return p.Run(ctx)
}

// options returns the options of the service proxy, but for its client.
func (c *ProxyConfig) options() (proxy.Options, error) {
	o := proxy.Options{Standalone: true, NodeName: c.NodeName, Mode: c.Mode, MasqueradeAll: c.MasqueradeAll, MasqueradeBit: c.MasqueradeBit,
		HealthzAddress: c.HealthzAddress, MetricsAddress: c.MetricsAddress, Log: c.Log}
	var err error
	if o.ClusterCIDRs, err = parseProxyRanges("cluster-cidr", c.ClusterCIDRs); err != nil {
		return o, err
	}
	if len(c.NodePortAddresses) != 1 || c.NodePortAddresses[0] != "primary" {
		if o.NodePortAddresses, err = parseProxyRanges("nodeport-addresses", c.NodePortAddresses); err != nil {
			return o, err
		}
	}
	if c.BindAddress != "" {
		address, err := netip.ParseAddr(c.BindAddress)
		if err != nil {
			return o, fmt.Errorf("--bind-address: %w", err)
		}
		if !address.IsUnspecified() {
			o.NodeIPs = []netip.Addr{address}
		}
	}
	if o.NodeName == "" {
		if o.NodeName, err = os.Hostname(); err != nil {
			return o, err
		}
		o.NodeName = strings.ToLower(o.NodeName)
	}
	o.MinSyncPeriod, o.SyncPeriod = c.NFTables.MinPeriod, c.NFTables.Period
	if o.Mode == "iptables" {
		o.MinSyncPeriod, o.SyncPeriod = c.IPTables.MinPeriod, c.IPTables.Period
	}
	return o, nil
}

func parseProxyRanges(flag string, cidrs []string) (ranges []netip.Prefix, err error) {
	for _, cidr := range cidrs {
		p, err := netip.ParsePrefix(strings.TrimSpace(cidr))
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		ranges = append(ranges, p.Masked())
	}
	return ranges, nil
}

// CleanProxy removes all rules of the service proxy from this machine.
func CleanProxy() error { return proxy.Clean() }
