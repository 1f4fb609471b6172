package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/client"
	"skiff/internal/controller/clusterdns"
	"skiff/internal/journey"
	"skiff/internal/network/dns"
	"skiff/internal/network/overlay"
	"skiff/internal/network/podnet"
	"skiff/internal/network/proxy"
)

// network runs the parts of a node's network: the overlay, the service proxy and DNS.
type network struct {
	node      *node
	access    nodeAccess
	nodeIPs   []netip.Addr
	podRanges []netip.Prefix // ranges of pod addresses of the whole cluster

	mtu        atomic.Int64  // MTU of pods' links; 0 is that of the interface with the default route
	mtuChanged chan struct{} // receives when mtu has changed
}

// prepareNetwork sets up masquerading, which pods need from the start, and removes the rules of parts that are disabled.
func (n *node) prepareNetwork(a nodeAccess) error {
	ranges, err := parseRanges(a.ClusterCIDRs)
	if err != nil {
		return err
	}
	if err := podnet.EnsureMasquerade(ranges); err != nil {
		return err
	}
	for part, clean := range map[string]func() error{PartOverlay: overlay.Clean, PartProxy: proxy.Clean} {
		if a.Network.disabled(part) {
			if err := clean(); err != nil {
				return fmt.Errorf("failed to remove the rules of the %s, which is disabled: %w", part, err)
			}
		}
	}
	return nil
}

// startNetwork starts the parts of the network that are not disabled, which run until ctx ends, and returns their metrics.
func (n *node) startNetwork(ctx context.Context, a nodeAccess) (prometheus.Gatherers, error) {
	w := &network{node: n, access: a, mtuChanged: make(chan struct{}, 1)}
	var err error
	if w.podRanges, err = parseRanges(a.ClusterCIDRs); err != nil {
		return nil, err
	}
	for _, ip := range n.nodeIPs {
		address, err := netip.ParseAddr(ip)
		if err != nil {
			return nil, fmt.Errorf("failed to parse the node's address: %w", err)
		}
		w.nodeIPs = append(w.nodeIPs, address)
	}
	var metrics prometheus.Gatherers
	for _, part := range []struct {
		name  string
		start func(context.Context) (prometheus.Gatherer, error)
	}{{PartOverlay, w.startOverlay}, {PartProxy, w.startProxy}, {PartDNS, w.startDNS}} {
		if a.Network.disabled(part.name) {
			continue
		}
		m, err := part.start(ctx)
		if err != nil {
			return nil, fmt.Errorf("failed to start the %s: %w", part.name, err)
		}
		metrics = append(metrics, m)
	}
	n.options.Go(func() { w.configurePods(ctx) })
	n.options.Go(func() { w.annotateDNS(ctx) })
	return metrics, nil
}

// run runs a part of the network until ctx ends.
func (w *network) run(ctx context.Context, part string, run func(context.Context) error) {
	w.node.options.Go(func() {
		if err := run(ctx); err != nil && ctx.Err() == nil {
			w.node.options.Fail(fmt.Errorf("the %s failed: %w", part, err))
		}
	})
}

func (w *network) startOverlay(ctx context.Context) (prometheus.Gatherer, error) {
	c, err := w.access.As("overlay")
	if err != nil {
		return nil, err
	}
	o, err := overlay.New(overlay.Options{
		Client: c, NodeName: w.node.name, NodeIPs: w.nodeIPs, Backend: w.access.Network.Overlay, ClusterCIDRs: w.podRanges, Log: w.node.options.Log,
		MTUChanged: func(mtu int) {
			if w.mtu.Swap(int64(mtu)) != int64(mtu) {
				select {
				case w.mtuChanged <- struct{}{}:
				default:
				}
			}
		},
	})
	if err != nil {
		return nil, err
	}
	if mtu, err := overlay.MTU(w.access.Network.Overlay, w.nodeIPs); err == nil {
		w.mtu.Store(int64(mtu)) // pods need not wait for the overlay, which reports it later
	}
	w.run(ctx, PartOverlay, o.Run)
	return o.Metrics(), nil
}

// proxyMinSyncPeriod is the least time between two changes of the proxy's rules. Small changes take a fraction of a millisecond; after large ones the proxy waits
// longer by itself.
const proxyMinSyncPeriod = 10 * time.Millisecond

func (w *network) startProxy(ctx context.Context) (prometheus.Gatherer, error) {
	c, err := w.access.As("kube-proxy")
	if err != nil {
		return nil, err
	}
	nodeAttribute := journey.Attribute{Key: "node", Value: w.node.name}
	p, err := proxy.New(proxy.Options{
		Client: c, NodeName: w.node.name, NodeIPs: w.nodeIPs, Mode: w.access.Network.ProxyMode, ClusterCIDRs: w.podRanges, Log: w.node.options.Log, MinSyncPeriod: proxyMinSyncPeriod,
		Standalone:     w.access.Remote,
		HealthzAddress: fmt.Sprintf(":%d", proxyHealthPort), MetricsAddress: fmt.Sprintf("127.0.0.1:%d", proxyMetricsPort),
		Programmed: func(object metav1.Object, seen, done time.Time) {
			c.Record(object, journey.Proxy, seen, done, nil, nodeAttribute)
		},
	})
	if err != nil {
		return nil, err
	}
	w.run(ctx, PartProxy, p.Run)
	return p.Metrics(), nil
}

func (w *network) startDNS(ctx context.Context) (prometheus.Gatherer, error) {
	listen := make([]netip.AddrPort, 0, len(w.nodeIPs))
	for _, ip := range w.nodeIPs {
		listen = append(listen, netip.AddrPortFrom(ip, dnsPort))
	}
	c, err := w.access.As("dns")
	if err != nil {
		return nil, err
	}
	s, err := dns.New(dns.Options{Client: c, NodeName: w.node.name, Domain: w.access.Domain, Listen: listen, PodCIDRs: w.podRanges, ResolvConf: "/etc/resolv.conf", Log: w.node.options.Log})
	if err != nil {
		return nil, err
	}
	w.run(ctx, PartDNS, s.Run)
	return s.Metrics(), nil
}

// annotateDNS annotates the Node with the port of its name server, or removes the annotation if it runs none. The Service of the cluster's DNS gets an endpoint
// for each annotated node.
func (w *network) annotateDNS(ctx context.Context) {
	var port any // null, which removes the annotation
	if !w.access.Network.disabled(PartDNS) {
		port = strconv.Itoa(dnsPort)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{clusterdns.PortAnnotation: port}}})
	if err != nil {
		panic(err) // maps of strings can be marshalled
	}
	w.retry(ctx, "failed to annotate the Node with its name server", func() error {
		_, err := w.access.Client.Kubernetes().CoreV1().Nodes().Patch(ctx, w.node.name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}

// configurePods writes the CNI configuration of pods as soon as the node has a range of pod addresses, and again when the MTU changes.
func (w *network) configurePods(ctx context.Context) {
	for {
		w.retry(ctx, "failed to configure the pods' network", func() error { return w.writeConfig(ctx, w.access.Client) })
		select {
		case <-ctx.Done():
			return
		case <-w.mtuChanged:
		}
	}
}

// writeConfig writes the CNI configuration with the pod ranges that the Node has.
func (w *network) writeConfig(ctx context.Context, c *client.Client) error {
	object, err := c.Kubernetes().CoreV1().Nodes().Get(ctx, w.node.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	ranges, err := parseRanges(object.Spec.PodCIDRs)
	if err != nil {
		return err
	}
	config := w.node.podNetworkConfig()
	config.PodCIDRs, config.MTU = ranges, int(w.mtu.Load())
	return config.Write()
}

// retry calls do until it succeeds or ctx ends, and logs failure after a second.
func (w *network) retry(ctx context.Context, failure string, do func() error) {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := do()
		if err == nil {
			return
		}
		if wait >= time.Second && ctx.Err() == nil {
			w.node.options.Log.Warn(failure, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// cleanNetwork removes everything that the parts of the network have made on this machine.
func cleanNetwork() error { return errors.Join(overlay.Clean(), proxy.Clean()) }
