//go:build linux

package proxytest

import (
	"net"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/network/proxy/model"
)

func testNodePort(t *testing.T, w *Cluster) {
	w.NewService(t, func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeNodePort
		s.Spec.Ports[0].NodePort, s.Spec.Ports[1].NodePort = 30080, 30081
	}, "pod0", "far")
	for network, address := range map[string]string{"tcp": NodeIP + ":30080", "udp": NodeIP + ":30081"} {
		w.ExpectsAll(t, w.Outside, network, address, "pod0", "far") // far has no route to the outside, so the node must masquerade
		w.ExpectsAll(t, w.Pods[1], network, address, "pod0", "far")
		w.ExpectsAll(t, w.Pods[0], network, address, "pod0", "far")
		w.ExpectsAll(t, w.Node, network, address, "pod0", "far")
	}
	if !w.options.IPv4Only {
		w.ExpectsAll(t, w.Outside, "tcp", net.JoinHostPort(Node6, "30080"), "pod0", "far")
		w.ExpectsAll(t, w.Outside, "udp", net.JoinHostPort(Node6, "30081"), "pod0", "far")
	}
	w.ExpectsNothing(t, w.Outside, "tcp", NodeIP+":30081") // that is the UDP node port
	if w.options.LoopbackToo {
		w.Expects(t, w.Node, "tcp", "127.0.0.1:30080", "", "pod0", "far")
	} else {
		w.ExpectsNothing(t, w.Node, "tcp", "127.0.0.1:30080")
	}
}

func testExternalIPs(t *testing.T, w *Cluster) {
	w.NewService(t, func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"203.0.113.5", "2001:db8:2::5"} }, "pod0", "far")
	for _, network := range protocols {
		w.ExpectsAll(t, w.Outside, network, "203.0.113.5:80", "pod0", "far")
		w.Expects(t, w.Pods[1], network, "203.0.113.5:80", "", "pod0", "far")
		w.Expects(t, w.Node, network, "203.0.113.5:80", "", "pod0", "far")
		if !w.options.IPv4Only {
			w.ExpectsAll(t, w.Outside, network, "[2001:db8:2::5]:80", "pod0", "far")
		}
	}
}

func testSourceRanges(t *testing.T, w *Cluster) {
	s := w.NewService(t, func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
			{IP: "203.0.113.9"}, {IP: "2001:db8:2::9"}, {IP: "203.0.113.10", IPMode: ptr(corev1.LoadBalancerIPModeProxy)}, {Hostname: "example.com"},
		}
	}, "pod0", "far")
	open := func(network string) {
		t.Helper()
		w.ExpectsAll(t, w.Outside, network, "203.0.113.9:80", "pod0", "far")
		w.Expects(t, w.Pods[1], network, "203.0.113.9:80", "", "pod0", "far")
		w.Expects(t, w.Node, network, "203.0.113.9:80", "", "pod0", "far")
		if !w.options.IPv4Only {
			w.ExpectsAll(t, w.Outside, network, "[2001:db8:2::9]:80", "pod0", "far")
		}
	}
	open("tcp")
	open("udp")
	w.ExpectsNothing(t, w.Pods[1], "tcp", "203.0.113.10:80") // an ingress with IP mode Proxy is not served
	if w.options.NoSourceRanges {
		return
	}
	ranges := func(list ...string) {
		t.Helper()
		s.Update(t, func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = list })
	}
	ranges(" 192.0.2.2/32", "198.18.0.0/15", "198.18.4.0/24", "198.18.4.0/24") // with blanks and overlaps, as the API allows
	w.Expects(t, w.Outside, "tcp", "203.0.113.9:80", "", "pod0", "far")
	w.ExpectsSilence(t, w.Pods[1], "tcp", "203.0.113.9:80")
	w.ExpectsSilence(t, w.Node, "tcp", "203.0.113.9:80")
	w.Expects(t, w.Pods[1], "tcp", s.At(model.IPv4), PodIP(1), "pod0", "far") // source ranges apply only to load balancer addresses
	if !w.options.IPv4Only {
		w.Expects(t, w.Outside, "tcp", "[2001:db8:2::9]:80", "", "pod0", "far") // there are no ranges for this family
	}
	ranges("10.42.0.3/32")
	w.ExpectsSilence(t, w.Outside, "udp", "203.0.113.9:80")
	w.Expects(t, w.Pods[1], "udp", "203.0.113.9:80", "", "pod0", "far")
	ranges(NodeIP + "/32")
	w.Expects(t, w.Node, "tcp", "203.0.113.9:80", "", "pod0", "far")
	w.ExpectsSilence(t, w.Outside, "tcp", "203.0.113.9:80")
	ranges("10.0.0.0/8", "0.0.0.0/0")
	open("tcp")
	ranges()
	open("udp")
}

func testExternalPolicy(t *testing.T, w *Cluster) {
	s := w.NewService(t, func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.Ports[0].NodePort, s.Spec.Ports[1].NodePort = 30090, 30090
		s.Spec.ExternalIPs = []string{"203.0.113.11"}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.12"}}
	}, "pod0", "pod1", "far")
	everywhere := []string{NodeIP + ":30090", "203.0.113.11:80", "203.0.113.12:80"}
	for _, network := range protocols {
		for _, address := range everywhere {
			w.ExpectsAll(t, w.Outside, network, address, "pod0", "pod1")
			w.Expects(t, w.Outside, network, address, OutsideIP, "pod0", "pod1") // endpoints see the client's address
			w.ExpectsAll(t, w.Pods[2], network, address, "pod0", "pod1", "far")  // the policy applies only to clients outside
			w.ExpectsAll(t, w.Node, network, address, "pod0", "pod1", "far")
		}
	}
	s.SetEndpoints(t, "far")
	for _, network := range protocols {
		for _, address := range everywhere {
			w.ExpectsSilence(t, w.Outside, network, address)
			w.Expects(t, w.Pods[2], network, address, "", "far")
			w.Expects(t, w.Node, network, address, "", "far")
		}
	}
	s.SetEndpoints(t, "~pod0", "far") // the last local endpoint, terminating, still serves
	w.Expects(t, w.Outside, "tcp", everywhere[0], OutsideIP, "pod0")
	s.SetEndpoints(t)
	w.ExpectsRefusal(t, w.Outside, "tcp", everywhere[1])
}
