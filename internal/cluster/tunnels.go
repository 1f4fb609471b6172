package cluster

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/client"
	"skiff/internal/cluster/tunnel"
)

// openHub returns the server's end of the tunnels through which it reaches nodes.
func (s *Server) openHub() *tunnel.Hub {
	o := tunnel.HubOptions{Nodes: s.nodeLister(), Log: s.config.Log, Direct: (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TunnelServices: !s.config.Node.Run, // without a node this machine has no service proxy
		OwnAddresses:   machineAddresses}
	o.PodCIDRs, _ = parsePrefixes(s.config.Loops.ClusterCIDRs) // checkNetwork has checked them
	o.ServiceCIDRs, _ = parsePrefixes(s.config.ServiceCIDRs)
	return tunnel.NewHub(o)
}

// machineAddresses returns the addresses of this machine's interfaces.
func machineAddresses() (out []netip.Addr) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil // the hub then does not know which addresses are the server's own
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out
}

// nodeLister returns a function that lists all nodes.
func (s *Server) nodeLister() func(context.Context) ([]*corev1.Node, error) {
	newClient := sync.OnceValues(func() (*client.Client, error) { // a cluster without agents does not need one
		return client.ForServer(s.api, client.Identity{Component: "kube-apiserver", User: "system:serviceaccount:kube-system:skiff-tunnels",
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system"}})
	})
	return func(ctx context.Context) ([]*corev1.Node, error) {
		c, err := newClient()
		if err != nil {
			return nil, err
		}
		list, err := c.Kubernetes().CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return nil, err
		}
		nodes := make([]*corev1.Node, 0, len(list.Items))
		for i := range list.Items {
			nodes = append(nodes, &list.Items[i])
		}
		return nodes, nil
	}
}

// keepTunnel keeps a tunnel to the server open until ctx ends, through which the server reaches this node.
func (a *Agent) keepTunnel(ctx context.Context, c *client.Client) error {
	services, err := parsePrefixes(a.state.Cluster.ServiceCIDRs)
	if err != nil {
		return err
	}
	nodeIP, err := netip.ParseAddr(a.config.Node.IP)
	if err != nil {
		return err
	}
	core := c.Kubernetes().CoreV1()
	policy := &tunnelPolicy{kubelet: netip.AddrPortFrom(nodeIP.Unmap(), uint16(a.config.Node.Port)), serviceRanges: services, listPodRanges: func(ctx context.Context) ([]netip.Prefix, error) {
		node, err := core.Nodes().Get(ctx, a.config.Node.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return parsePrefixes(node.Spec.PodCIDRs)
	}, listPods: func(ctx context.Context) ([]corev1.Pod, error) {
		list, err := core.Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + a.config.Node.Name, ResourceVersion: "0"})
		if err != nil {
			return nil, err
		}
		return list.Items, nil
	}}
	host := strings.TrimPrefix(a.config.Server, "https://")
	a.wg.Go(func() {
		tunnel.Keep(ctx, tunnel.AgentOptions{Node: a.config.Node.Name, Host: host, Allowed: policy.allows, Log: a.config.Log, Dial: func(ctx context.Context) (net.Conn, error) {
			return a.identity.Dial(ctx, "http/1.1")
		}})
	})
	return nil
}

// tunnelPolicy decides what the server may reach through an agent: its kubelet, its pods, host ports of its pods at the node's own address, and Services.
type tunnelPolicy struct {
	kubelet       netip.AddrPort
	serviceRanges []netip.Prefix
	listPodRanges func(context.Context) ([]netip.Prefix, error) // reads the node's pod ranges from the API
	listPods      func(context.Context) ([]corev1.Pod, error)   // lists the node's pods from the API

	mu        sync.Mutex
	podRanges []netip.Prefix // as listed last
	listedAt  time.Time
}

// listPeriod is how often pod ranges are listed at most: a node has none at first, and keeps those it gets.
const listPeriod = 5 * time.Second

// allows reports whether the server may connect to an address through this agent.
func (p *tunnelPolicy) allows(ctx context.Context, to netip.AddrPort) bool {
	ip := to.Addr().Unmap()
	in := func(prefix netip.Prefix) bool { return prefix.Contains(ip) }
	switch {
	case netip.AddrPortFrom(ip, to.Port()) == p.kubelet, slices.ContainsFunc(p.serviceRanges, in):
		return true
	case ip == p.kubelet.Addr():
		return p.isHostPort(ctx, to.Port())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.ContainsFunc(p.podRanges, in) && time.Since(p.listedAt) > listPeriod {
		if ranges, err := p.listPodRanges(ctx); err == nil {
			p.podRanges, p.listedAt = ranges, time.Now()
		}
	}
	return slices.ContainsFunc(p.podRanges, in)
}

// isHostPort reports whether a container of the node's pods has a TCP host port of this number. Pods in the host network have all ports that they declare as host ports.
func (p *tunnelPolicy) isHostPort(ctx context.Context, port uint16) bool {
	pods, err := p.listPods(ctx)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
		return slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool {
			return slices.ContainsFunc(c.Ports, func(containerPort corev1.ContainerPort) bool {
				return containerPort.HostPort == int32(port) && containerPort.Protocol == corev1.ProtocolTCP
			})
		})
	})
}

func parsePrefixes(cidrs []string) (out []netip.Prefix, err error) {
	for _, cidr := range cidrs {
		p, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, fmt.Errorf("failed to parse a range of addresses: %w", err)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}
