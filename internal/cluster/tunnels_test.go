package cluster

import (
	"context"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// The server reaches an agent's kubelet, its pods and services, and nothing else that the agent could connect to.
func TestReach(t *testing.T) {
	port := func(number int32, protocol corev1.Protocol) []corev1.Container {
		return []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: number, ContainerPort: number, Protocol: protocol}}}}
	}
	asked := 0
	r := &tunnelPolicy{
		kubelet: netip.MustParseAddrPort("192.0.2.7:10250"), serviceRanges: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")},
		listPodRanges: func(context.Context) ([]netip.Prefix, error) {
			asked++
			return []netip.Prefix{netip.MustParsePrefix("10.42.3.0/24")}, nil
		},
		listPods: func(context.Context) ([]corev1.Pod, error) {
			return []corev1.Pod{{Spec: corev1.PodSpec{Containers: port(9100, corev1.ProtocolTCP)}}, {Spec: corev1.PodSpec{InitContainers: port(53, corev1.ProtocolUDP)}}}, nil
		},
	}
	for to, want := range map[string]bool{
		"192.0.2.7:10250": true, "[::ffff:192.0.2.7]:10250": true, "10.43.0.1:443": true, "10.42.3.9:80": true, "192.0.2.7:9100": true,
		"192.0.2.7:22": false, "192.0.2.7:53": false, "10.42.4.9:80": false, "127.0.0.1:10250": false, "169.254.169.254:80": false, "192.0.2.8:10250": false,
	} {
		if got := r.allows(t.Context(), netip.MustParseAddrPort(to)); got != want {
			t.Errorf("%s: %t", to, got)
		}
	}
	if asked != 1 {
		t.Errorf("the ranges were asked for %d times", asked)
	}
}
