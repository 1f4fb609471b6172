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

// network connects a node's pods with those of others and with services.
type network struct {
	n      *node
	a      nodeAccess
	ips    []netip.Addr
	ranges []netip.Prefix // of pods, on all nodes

	mtu     atomic.Int64  // of pods' links; that of the way out if 0
	changed chan struct{} // the MTU has
}

// prepareNetwork makes what must be there before the first pod is, and removes what parts that are not to run have left.
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
				return fmt.Errorf("removing what the %s left: %w", part, err)
			}
		}
	}
	return nil
}

// startNetwork runs what connects the pods of this node with those of others and with services, until ctx ends. What is returned
// are its metrics.
func (n *node) startNetwork(ctx context.Context, a nodeAccess) (prometheus.Gatherers, error) {
	w := &network{n: n, a: a, changed: make(chan struct{}, 1)}
	var err error
	if w.ranges, err = parseRanges(a.ClusterCIDRs); err != nil {
		return nil, err
	}
	for _, ip := range n.ips {
		address, err := netip.ParseAddr(ip)
		if err != nil {
			return nil, fmt.Errorf("the node's address: %w", err)
		}
		w.ips = append(w.ips, address)
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
			return nil, fmt.Errorf("the %s: %w", part.name, err)
		}
		metrics = append(metrics, m)
	}
	n.o.Go(func() { w.connectPods(ctx) })
	n.o.Go(func() { w.announceDNS(ctx) })
	return metrics, nil
}

// run runs a part of the network until ctx ends.
func (w *network) run(ctx context.Context, part string, run func(context.Context) error) {
	w.n.o.Go(func() {
		if err := run(ctx); err != nil && ctx.Err() == nil {
			w.n.o.Fail(fmt.Errorf("the %s: %w", part, err))
		}
	})
}

func (w *network) startOverlay(ctx context.Context) (prometheus.Gatherer, error) {
	c, err := w.a.As("overlay")
	if err != nil {
		return nil, err
	}
	o, err := overlay.New(overlay.Options{
		Client: c, NodeName: w.n.name, NodeIPs: w.ips, Backend: w.a.Network.Overlay, ClusterCIDRs: w.ranges, Log: w.n.o.Log,
		MTUChanged: func(mtu int) {
			if w.mtu.Swap(int64(mtu)) != int64(mtu) {
				select {
				case w.changed <- struct{}{}:
				default:
				}
			}
		},
	})
	if err != nil {
		return nil, err
	}
	if mtu, err := overlay.MTU(w.a.Network.Overlay, w.ips); err == nil {
		w.mtu.Store(int64(mtu)) // the overlay may take a moment, and pods need not wait for it
	}
	w.run(ctx, PartOverlay, o.Run)
	return o.Metrics(), nil
}

// proxySyncs is the least time between two changes of the proxy's rules. Small changes take a fraction of a millisecond; after large ones the proxy rests
// longer by itself.
const proxySyncs = 10 * time.Millisecond

func (w *network) startProxy(ctx context.Context) (prometheus.Gatherer, error) {
	c, err := w.a.As("kube-proxy")
	if err != nil {
		return nil, err
	}
	on := journey.Attribute{Key: "node", Value: w.n.name}
	p, err := proxy.New(proxy.Options{
		Client: c, NodeName: w.n.name, NodeIPs: w.ips, Mode: w.a.Network.ProxyMode, ClusterCIDRs: w.ranges, Log: w.n.o.Log, MinSyncPeriod: proxySyncs,
		Standalone:     w.a.Remote,
		HealthzAddress: fmt.Sprintf(":%d", proxyHealthPort), MetricsAddress: fmt.Sprintf("127.0.0.1:%d", proxyMetricsPort),
		Programmed: func(object metav1.Object, seen, done time.Time) { c.Record(object, journey.Proxy, seen, done, nil, on) },
	})
	if err != nil {
		return nil, err
	}
	w.run(ctx, PartProxy, p.Run)
	return p.Metrics(), nil
}

func (w *network) startDNS(ctx context.Context) (prometheus.Gatherer, error) {
	listen := make([]netip.AddrPort, 0, len(w.ips))
	for _, ip := range w.ips {
		listen = append(listen, netip.AddrPortFrom(ip, dnsPort))
	}
	c, err := w.a.As("dns")
	if err != nil {
		return nil, err
	}
	s, err := dns.New(dns.Options{Client: c, NodeName: w.n.name, Domain: w.a.Domain, Listen: listen, PodCIDRs: w.ranges, ResolvConf: "/etc/resolv.conf", Log: w.n.o.Log})
	if err != nil {
		return nil, err
	}
	w.run(ctx, PartDNS, s.Run)
	return s.Metrics(), nil
}

// announceDNS says of the node whether it runs a name server, which pods then find behind the cluster's Service.
func (w *network) announceDNS(ctx context.Context) {
	var port any // none
	if !w.a.Network.disabled(PartDNS) {
		port = strconv.Itoa(dnsPort)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{clusterdns.PortAnnotation: port}}})
	if err != nil {
		panic(err) // it is made of strings
	}
	w.retry(ctx, "it is not known yet whether this node runs a name server", func() error {
		_, err := w.a.Client.Kubernetes().CoreV1().Nodes().Patch(ctx, w.n.name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}

// connectPods configures the pods' network as soon as the node has a range of addresses, and again when packets may be larger or must be smaller.
func (w *network) connectPods(ctx context.Context) {
	for {
		w.retry(ctx, "the pods' network is not configured yet", func() error { return w.write(ctx, w.a.Client) })
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
		}
	}
}

func (w *network) write(ctx context.Context, c *client.Client) error {
	object, err := c.Kubernetes().CoreV1().Nodes().Get(ctx, w.n.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	ranges, err := parseRanges(object.Spec.PodCIDRs)
	if err != nil {
		return err
	}
	config := w.n.podNetwork()
	config.PodCIDRs, config.MTU = ranges, int(w.mtu.Load())
	return config.Write()
}

// retry does something until it works or ctx ends.
func (w *network) retry(ctx context.Context, what string, do func() error) {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := do()
		if err == nil {
			return
		}
		if wait >= time.Second && ctx.Err() == nil {
			w.n.o.Log.Warn(what, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// cleanNetwork removes every trace of the network's parts.
func cleanNetwork() error { return errors.Join(overlay.Clean(), proxy.Clean()) }
