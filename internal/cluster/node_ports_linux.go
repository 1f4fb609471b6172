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

// listeners are all ports of the node's own, of the parts that run here.
func (n *node) listeners(a nodeAccess) []nodeListener {
	all := append([]nodeListener{}, n.o.Listeners...)
	add := func(use, network, host string, port int) {
		all = append(all, nodeListener{use, network, net.JoinHostPort(host, strconv.Itoa(port))})
	}
	add("the kubelet", "tcp", "", n.o.Config.Port)
	all = append(all, nodeListener{"the image registry", "tcp", n.serving.Server.Address()})
	if !a.Network.disabled(PartProxy) {
		add("the service proxy's health server", "tcp", "", proxyHealthPort)
		add("the service proxy's metrics server", "tcp", "127.0.0.1", proxyMetricsPort)
	}
	if !a.Network.disabled(PartDNS) {
		for _, ip := range n.ips {
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

// reservedPorts are the same, as the kubelet has them.
func (n *node) reservedPorts(a nodeAccess) (out []kubelet.ReservedPort, err error) {
	for _, l := range n.listeners(a) {
		host, number, err := net.SplitHostPort(l.address)
		if err != nil {
			return nil, fmt.Errorf("the address of %s: %w", l.use, err)
		}
		port, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("the port of %s: %w", l.use, err)
		}
		protocol := corev1.ProtocolTCP
		if l.network == "udp" {
			protocol = corev1.ProtocolUDP
		}
		ip, _ := netip.ParseAddr(host) // a name, or none, stands for all addresses
		out = append(out, kubelet.ReservedPort{Protocol: protocol, IP: ip, Port: uint16(port), Use: l.use})
	}
	return out, nil
}
