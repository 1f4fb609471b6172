package cluster

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/kubelet"
	"skiff/internal/network/overlay"
)

// listeners returns all addresses that skiff listens on at this node.
func (n *node) listeners(a nodeAccess) []nodeListener {
	all := append([]nodeListener{}, n.options.Listeners...)
	add := func(use, network, host string, port int) {
		all = append(all, nodeListener{use, network, net.JoinHostPort(host, strconv.Itoa(port))})
	}
	add("the kubelet", "tcp", "", n.options.Config.Port)
	all = append(all, nodeListener{"the image registry", "tcp", n.registry.Server.Address()})
	if !a.Network.disabled(PartProxy) {
		add("the service proxy's health server", "tcp", "", proxyHealthPort)
		add("the service proxy's metrics server", "tcp", "127.0.0.1", proxyMetricsPort)
	}
	if !a.Network.disabled(PartDNS) {
		for _, ip := range n.nodeIPs {
			add("the name server", "tcp", ip, dnsPort)
			add("the name server", "udp", ip, dnsPort)
		}
	}
	if !a.Network.disabled(PartOverlay) {
		for _, port := range overlay.Ports(a.Network.Overlay) {
			add("the overlay network", "udp", "", int(port))
		}
	}
	return all
}

// reservedPorts returns the ports of listeners, which the kubelet gives to no pod.
func (n *node) reservedPorts(a nodeAccess) (out []kubelet.ReservedPort, err error) {
	for _, l := range n.listeners(a) {
		host, number, err := net.SplitHostPort(l.address)
		if err != nil {
			return nil, fmt.Errorf("failed to parse the address of %s: %w", l.use, err)
		}
		port, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("failed to parse the port of %s: %w", l.use, err)
		}
		protocol := corev1.ProtocolTCP
		if l.network == "udp" {
			protocol = corev1.ProtocolUDP
		}
		ip, _ := netip.ParseAddr(host) // not valid for a name or an empty host, which stand for all addresses
		out = append(out, kubelet.ReservedPort{Protocol: protocol, IP: ip, Port: uint16(port), Use: l.use})
	}
	return out, nil
}
