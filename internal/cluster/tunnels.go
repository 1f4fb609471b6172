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

// openHub makes the server's end of the tunnels through which it reaches nodes.
func (s *Server) openHub() *tunnel.Hub {
	o := tunnel.HubOptions{Nodes: s.nodeLister(), Log: s.config.Log, Direct: (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TunnelServices: !s.config.Node.Run, // without a node nothing leads services' addresses anywhere from here
		OwnAddresses:   machineAddresses}
	o.PodCIDRs, _ = parsePrefixes(s.config.Loops.ClusterCIDRs) // they were checked
	o.ServiceCIDRs, _ = parsePrefixes(s.config.ServiceCIDRs)
	return tunnel.NewHub(o)
}

// machineAddresses are the addresses of this machine's interfaces.
func machineAddresses() (out []netip.Addr) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil // an address of the server's machine is then one that nobody can say whose it is
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out
}

// nodeLister returns what lists all nodes.
func (s *Server) nodeLister() func(context.Context) ([]*corev1.Node, error) {
	as := sync.OnceValues(func() (*client.Client, error) { // a cluster without agents has no use for it
		return client.ForServer(s.api, client.Identity{Component: "kube-apiserver", User: "system:serviceaccount:kube-system:skiff-tunnels",
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system"}})
	})
	return func(ctx context.Context) ([]*corev1.Node, error) {
		c, err := as()
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

// keepTunnel has the server reach this agent through a connection that the agent makes.
func (a *Agent) keepTunnel(ctx context.Context, c *client.Client) error {
	services, err := parsePrefixes(a.state.Cluster.ServiceCIDRs)
	if err != nil {
		return err
	}
	own, err := netip.ParseAddr(a.config.Node.IP)
	if err != nil {
		return err
	}
	core := c.Kubernetes().CoreV1()
	reach := &reach{kubelet: netip.AddrPortFrom(own.Unmap(), uint16(a.config.Node.Port)), services: services, ranges: func(ctx context.Context) ([]netip.Prefix, error) {
		node, err := core.Nodes().Get(ctx, a.config.Node.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return parsePrefixes(node.Spec.PodCIDRs)
	}, pods: func(ctx context.Context) ([]corev1.Pod, error) {
		list, err := core.Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + a.config.Node.Name, ResourceVersion: "0"})
		if err != nil {
			return nil, err
		}
		return list.Items, nil
	}}
	host := strings.TrimPrefix(a.config.Server, "https://")
	a.wg.Go(func() {
		tunnel.Keep(ctx, tunnel.AgentOptions{Node: a.config.Node.Name, Host: host, Allowed: reach.allows, Log: a.config.Log, Dial: func(ctx context.Context) (net.Conn, error) {
			return a.identity.Dial(ctx, "http/1.1")
		}})
	})
	return nil
}

// reach is what the server may reach through an agent: its kubelet, its pods, at the node's own address only those ports that they have there, and
// services.
type reach struct {
	kubelet  netip.AddrPort
	services []netip.Prefix
	ranges   func(context.Context) ([]netip.Prefix, error) // asks for those of the node's pods
	pods     func(context.Context) ([]corev1.Pod, error)   // asks for the node's pods

	mu    sync.Mutex
	known []netip.Prefix // the ranges
	asked time.Time
}

// askAgain is how often the pods' ranges are asked for at most: a node has none at first, and keeps those it gets.
const askAgain = 5 * time.Second

func (r *reach) allows(ctx context.Context, to netip.AddrPort) bool {
	ip := to.Addr().Unmap()
	in := func(p netip.Prefix) bool { return p.Contains(ip) }
	switch {
	case netip.AddrPortFrom(ip, to.Port()) == r.kubelet, slices.ContainsFunc(r.services, in):
		return true
	case ip == r.kubelet.Addr():
		return r.hasPort(ctx, to.Port())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.ContainsFunc(r.known, in) && time.Since(r.asked) > askAgain {
		if ranges, err := r.ranges(ctx); err == nil {
			r.known, r.asked = ranges, time.Now()
		}
	}
	return slices.ContainsFunc(r.known, in)
}

// hasPort says whether a pod of the node has a port of the node: one that asked for it, or one in the node's own network, whose ports all are.
func (r *reach) hasPort(ctx context.Context, port uint16) bool {
	pods, err := r.pods(ctx)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
		return slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool {
			return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool {
				return p.HostPort == int32(port) && p.Protocol == corev1.ProtocolTCP
			})
		})
	})
}

func parsePrefixes(cidrs []string) (out []netip.Prefix, err error) {
	for _, cidr := range cidrs {
		p, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, fmt.Errorf("a range of addresses: %w", err)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}
