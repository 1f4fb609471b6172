package pod

import (
	corev1 "k8s.io/api/core/v1"

	"skiff/internal/catalog/check"
)

// openPort is a port of a container.
type openPort struct {
	at    place
	index int
	*corev1.ContainerPort
}

func (o openPort) in(spec *check.Part) string {
	return o.at.in(spec).Path("ports").Index(o.index).String()
}

// ports warns of ports of the pod's containers that overlap.
func (w *warner) ports(p *check.Part, spec *corev1.PodSpec) {
	var buf [8]openPort
	all := buf[:0]
	for at, c := range containers(spec) {
		for i := range c.Ports {
			all = append(all, openPort{at, i, &c.Ports[i]})
		}
	}
	for i, port := range all {
		if port.HostIP != "" && port.HostPort == 0 {
			w.at(port.at.in(p).Path("ports").Index(port.index), "hostIP set without hostPort: %+v", *port.ContainerPort)
		}
		for _, other := range all[:i] {
			if how := overlap(port.ContainerPort, other.ContainerPort); how != "" {
				w.at(port.at.in(p).Path("ports").Index(port.index), "%s port definition with %s", how, other.in(p))
			}
		}
	}
	for i, port := range all {
		for _, other := range all[:i] {
			if port.Name != "" && other.Name == port.Name {
				w.at(port.at.in(p).Path("ports").Index(port.index), "duplicate port name %q with %s, services and probes that select ports by name will use %s",
					port.Name, other.in(p), other.in(p))
				break
			}
		}
	}
}

// overlap returns how two ports of the same number overlap, "" if they do not.
func overlap(a, b *corev1.ContainerPort) string {
	switch {
	case a.ContainerPort != b.ContainerPort || a.Protocol != b.Protocol:
		return ""
	case a.HostIP == b.HostIP && a.HostPort == b.HostPort:
		return "duplicate"
	case a.HostPort == 0 || b.HostPort == 0:
		return "overlapping"
	case a.HostPort == b.HostPort && (a.HostIP == "") != (b.HostIP == ""):
		return "dangerously ambiguous"
	}
	return ""
}
