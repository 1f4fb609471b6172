package environment

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	maxHostname = 63 // the kernel has room for 64 bytes; upstream keeps one for the end
	maxFQDN     = 64
)

// Hostname returns the name of a pod's host and the domain it is in, which is empty for a pod without a subdomain.
func Hostname(pod *corev1.Pod, clusterDomain string) (hostname, domain string, err error) {
	if name := pod.Spec.HostnameOverride; name != nil {
		if problems := validation.IsDNS1123Subdomain(*name); len(problems) > 0 {
			return "", "", fmt.Errorf("pod HostnameOverride %q is not a valid DNS subdomain: %s", *name, strings.Join(problems, ";"))
		}
		hostname, err = shortened(pod.Name, *name)
		return hostname, "", err
	}
	hostname = pod.Name
	if name := pod.Spec.Hostname; name != "" {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return "", "", fmt.Errorf("pod Hostname %q is not a valid DNS label: %s", name, strings.Join(problems, ";"))
		}
		hostname = name
	}
	if hostname, err = shortened(pod.Name, hostname); err != nil {
		return "", "", err
	}
	if name := pod.Spec.Subdomain; name != "" {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return "", "", fmt.Errorf("pod Subdomain %q is not a valid DNS label: %s", name, strings.Join(problems, ";"))
		}
		domain = fmt.Sprintf("%s.%s.svc.%s", name, pod.Namespace, clusterDomain)
	}
	return hostname, domain, nil
}

// KernelHostname returns the name that the pod's sandbox is given: with its domain if the pod asks for that, and empty on the host network,
// where it is the node's.
func KernelHostname(pod *corev1.Pod, hostname, domain string) (string, error) {
	if pod.Spec.HostNetwork {
		return "", nil
	}
	if domain == "" || pod.Spec.SetHostnameAsFQDN == nil || !*pod.Spec.SetHostnameAsFQDN {
		return hostname, nil
	}
	fqdn := hostname + "." + domain
	if len(fqdn) > maxFQDN {
		return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is the max, "+
			"%d characters requested)", fqdn, maxFQDN, len(fqdn))
	}
	return fqdn, nil
}

func shortened(pod, hostname string) (string, error) {
	if len(hostname) <= maxHostname {
		return hostname, nil
	}
	short := strings.TrimRight(hostname[:maxHostname], "-.")
	if short == "" {
		return "", fmt.Errorf("hostname for pod %q was invalid: %q", pod, hostname)
	}
	return short, nil
}
