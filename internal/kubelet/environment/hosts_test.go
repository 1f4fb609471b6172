package environment

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestHosts(t *testing.T) {
	const standard = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n" +
		"fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
	const aliases = "\n# Entries added by HostAliases.\n123.45.67.89\tfoo\tbar\n1.2.3.4\tbaz\n"
	pod := &corev1.Pod{}
	with := &corev1.Pod{Spec: corev1.PodSpec{HostAliases: []corev1.HostAlias{{IP: "123.45.67.89", Hostnames: []string{"foo", "bar"}}, {IP: "1.2.3.4", Hostnames: []string{"baz"}}}}}
	host := with.DeepCopy()
	host.Spec.HostNetwork = true
	for _, c := range []struct {
		pod         *corev1.Pod
		ips, domain string
		want        string
	}{
		{pod, "10.0.0.5", "", standard + "10.0.0.5\tweb\n"},
		{pod, "10.0.0.5 fd00::5", "sub.n.svc.cluster.local", standard + "10.0.0.5\tweb.sub.n.svc.cluster.local\tweb\nfd00::5\tweb.sub.n.svc.cluster.local\tweb\n"},
		{with, "10.0.0.5", "", standard + "10.0.0.5\tweb\n" + aliases},
		{host, "10.0.0.5", "", "# Kubernetes-managed hosts file (host network).\nnode file\n" + aliases},
	} {
		if got := string(Hosts(c.pod, []byte("node file\n"), strings.Fields(c.ips), "web", c.domain)); got != c.want {
			t.Errorf("the file is\n%s, want\n%s", got, c.want)
		}
	}
	own := &corev1.Container{VolumeMounts: []corev1.VolumeMount{{MountPath: "/etc/hosts"}}}
	if !MountsHosts(pod, &corev1.Container{}, []string{"10.0.0.5"}) || MountsHosts(pod, &corev1.Container{}, nil) || !MountsHosts(host, &corev1.Container{}, nil) ||
		MountsHosts(pod, own, []string{"10.0.0.5"}) {
		t.Error("the hosts file is mounted when it must not be, or not when it must")
	}
}

func TestHostname(t *testing.T) {
	long := strings.Repeat("a", 62) + "-" + "bcd"
	for _, c := range []struct {
		spec                   corev1.PodSpec
		name                   string
		hostname, domain, full string
		err                    string
	}{
		{corev1.PodSpec{}, "web-1", "web-1", "", "web-1", ""},
		{corev1.PodSpec{Hostname: "h"}, "web-1", "h", "", "h", ""},
		{corev1.PodSpec{Subdomain: "s"}, "web-1", "web-1", "s.n.svc.cluster.local", "web-1", ""},
		{corev1.PodSpec{Hostname: "h", Subdomain: "s", SetHostnameAsFQDN: ptr(true)}, "web-1", "h", "s.n.svc.cluster.local", "h.s.n.svc.cluster.local", ""},
		{corev1.PodSpec{Hostname: "h", SetHostnameAsFQDN: ptr(true)}, "web-1", "h", "", "h", ""},
		{corev1.PodSpec{Hostname: "h", Subdomain: "s", SetHostnameAsFQDN: ptr(false)}, "web-1", "h", "s.n.svc.cluster.local", "h", ""},
		{corev1.PodSpec{HostNetwork: true}, "web-1", "web-1", "", "", ""},
		{corev1.PodSpec{Hostname: "h", Subdomain: "s", HostnameOverride: ptr("over.ride")}, "web-1", "over.ride", "", "over.ride", ""},
		{corev1.PodSpec{HostnameOverride: ptr("Over")}, "web-1", "", "", "", `pod HostnameOverride "Over" is not a valid DNS subdomain`},
		{corev1.PodSpec{Hostname: "H"}, "web-1", "", "", "", `pod Hostname "H" is not a valid DNS label`},
		{corev1.PodSpec{Subdomain: "a.b"}, "web-1", "", "", "", `pod Subdomain "a.b" is not a valid DNS label`},
		{corev1.PodSpec{}, long, strings.Repeat("a", 62), "", strings.Repeat("a", 62), ""},
		{corev1.PodSpec{Subdomain: "subdomain", SetHostnameAsFQDN: ptr(true)}, strings.Repeat("b", 40), "", "", "", "failed to construct FQDN from pod hostname and cluster domain, FQDN " +
			strings.Repeat("b", 40) + ".subdomain.n.svc.cluster.local is too long (64 characters is the max, 70 characters requested)"},
		{corev1.PodSpec{}, strings.Repeat("-", 70), "", "", "", "hostname for pod"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: c.name, Namespace: "n"}, Spec: c.spec}
		hostname, domain, err := Hostname(pod, "cluster.local")
		full := ""
		if err == nil {
			full, err = KernelHostname(pod, hostname, domain)
		}
		if c.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), c.err) {
				t.Errorf("%s: %v, want %s", c.name, err, c.err)
			}
			continue
		}
		if err != nil || hostname != c.hostname || domain != c.domain || full != c.full {
			t.Errorf("%s: %q %q %q %v, want %q %q %q", c.name, hostname, domain, full, err, c.hostname, c.domain, c.full)
		}
	}
}
