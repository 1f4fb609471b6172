package environment

import (
	"bytes"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// HostsPath is where containers, and nodes, keep the names of hosts.
const HostsPath = "/etc/hosts"

// Hosts returns the content of a pod's /etc/hosts: for a pod on the host network the node's own file, else one that names the pod itself. Host
// aliases follow in either.
func Hosts(pod *corev1.Pod, nodeFile []byte, podIPs []string, hostname, domain string) []byte {
	var b bytes.Buffer
	if pod.Spec.HostNetwork {
		b.WriteString("# Kubernetes-managed hosts file (host network).\n")
		b.Write(nodeFile)
	} else {
		b.WriteString("# Kubernetes-managed hosts file.\n")
		b.WriteString("127.0.0.1\tlocalhost\n")
		b.WriteString("::1\tlocalhost ip6-localhost ip6-loopback\n")
		b.WriteString("fe00::0\tip6-localnet\n")
		b.WriteString("fe00::0\tip6-mcastprefix\n")
		b.WriteString("fe00::1\tip6-allnodes\n")
		b.WriteString("fe00::2\tip6-allrouters\n")
		names := hostname
		if domain != "" {
			names = hostname + "." + domain + "\t" + hostname
		}
		for _, ip := range podIPs {
			fmt.Fprintf(&b, "%s\t%s\n", ip, names)
		}
	}
	if len(pod.Spec.HostAliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
		for _, alias := range pod.Spec.HostAliases {
			fmt.Fprintf(&b, "%s\t%s\n", alias.IP, strings.Join(alias.Hostnames, "\t"))
		}
	}
	return b.Bytes()
}

// MountsHosts reports whether a container gets the pod's hosts file: not while the pod's address is unknown, nor when the container mounts a
// file of its own there.
func MountsHosts(pod *corev1.Pod, container *corev1.Container, podIPs []string) bool {
	if len(podIPs) == 0 && !pod.Spec.HostNetwork {
		return false
	}
	for _, m := range container.VolumeMounts {
		if m.MountPath == HostsPath {
			return false
		}
	}
	return true
}
