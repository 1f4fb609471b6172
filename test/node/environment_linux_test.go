package node

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func field(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

func environment(s *testNamespace) {
	s.apply(`
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: blue, shape: round}
---
apiVersion: v1
kind: Secret
metadata: {name: hidden}
stringData: {password: "s3cret"}
`)
	service, err := s.api.CoreV1().Services(s.name).Create(s.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "red-wine"}, Spec: corev1.ServiceSpec{
		Ports: []corev1.ServicePort{{Name: "pour", Port: 1234, TargetPort: intstr.FromInt32(80)}}}}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	ip := service.Spec.ClusterIP
	p := newPod("talks", sh("main", "env; echo arg=$0 $1; echo shell=$1"))
	p.Labels, p.Annotations = map[string]string{"tier": "front"}, map[string]string{"note": "by hand"}
	c := &p.Spec.Containers[0]
	c.Args = []string{"$(GREETING)", "$$(GREETING)-$(NOT_THERE)"}
	c.Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m")}, Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}}
	resourceOf := func(name, of, divisor string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: of, Divisor: resource.MustParse(divisor)}}}
	}
	c.Env = []corev1.EnvVar{
		{Name: "NAME", Value: "world"}, {Name: "GREETING", Value: "hello $(NAME) $$(NAME) $(NOBODY)"},
		field("POD", "metadata.name"), field("NAMESPACE", "metadata.namespace"), field("UID", "metadata.uid"), field("LABEL", "metadata.labels['tier']"),
		field("NOTE", "metadata.annotations['note']"), field("NODE", "spec.nodeName"), field("ACCOUNT", "spec.serviceAccountName"), field("HOST_IP", "status.hostIP"), field("POD_IP", "status.podIP"),
		resourceOf("CPU", "requests.cpu", "1m"), resourceOf("MEMORY", "limits.memory", "1Mi"), resourceOf("MORE_CPU", "limits.cpu", "1"),
		{Name: "COLOR", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Key: "color"}}},
		{Name: "PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "hidden"}, Key: "password"}}},
		{Name: "MAYBE", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}, Key: "x", Optional: new(true)}}},
	}
	c.EnvFrom = []corev1.EnvFromSource{{Prefix: "SET_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}},
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "hidden"}}},
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}, Optional: new(true)}}}
	got := s.each(p)["main"]
	done := s.get("talks")
	node := s.node()
	s.expect(got, map[string]string{
		"NAME": "world", "GREETING": "hello world $(NAME) $(NOBODY)", "arg": "hello world $(NAME) $(NOBODY) $(GREETING)-$(NOT_THERE)",
		"POD": "talks", "NAMESPACE": s.name, "UID": string(done.UID), "LABEL": "front", "NOTE": "by hand", "NODE": nodeName, "ACCOUNT": "default",
		"HOST_IP": done.Status.HostIP, "POD_IP": done.Status.PodIP, "CPU": "20", "MEMORY": "64", "MORE_CPU": fmt.Sprint(node.Status.Allocatable.Cpu().Value()),
		"COLOR": "blue", "PASSWORD": "s3cret", "SET_color": "blue", "SET_shape": "round", "password": "s3cret", "HOSTNAME": "talks",
		"RED_WINE_SERVICE_HOST": ip, "RED_WINE_SERVICE_PORT": "1234", "RED_WINE_SERVICE_PORT_POUR": "1234", "RED_WINE_PORT": "tcp://" + ip + ":1234", "RED_WINE_PORT_1234_TCP": "tcp://" + ip + ":1234",
		"RED_WINE_PORT_1234_TCP_PROTO": "tcp", "RED_WINE_PORT_1234_TCP_PORT": "1234", "RED_WINE_PORT_1234_TCP_ADDR": ip,
		"KUBERNETES_SERVICE_HOST": "10.43.0.1", "KUBERNETES_SERVICE_PORT": "443", "KUBERNETES_SERVICE_PORT_HTTPS": "443",
	})
	if _, set := got["MAYBE"]; set {
		s.Error("what is optional and not there is set")
	}
	// Who does not want to know of services only learns of the API.
	q := newPod("alone", sh("main", "env"))
	q.Spec.EnableServiceLinks = new(false)
	got = s.each(q)["main"]
	s.expect(got, map[string]string{"KUBERNETES_SERVICE_HOST": "10.43.0.1", "RED_WINE_SERVICE_HOST": ""})
}

func environmentMissing(s *testNamespace) {
	c := sh("main", "echo value=$VALUE")
	c.Env = []corev1.EnvVar{{Name: "VALUE", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "later"}, Key: "key"}}}}
	s.create(newPod("waits", c))
	p := s.wait("waits", "to wait for a config map", func(p *corev1.Pod) bool { return waiting(p, "main") == "CreateContainerConfigError" })
	if m := container(p, "main").State.Waiting.Message; m != `configmap "later" not found` {
		s.Errorf("message: %s", m)
	}
	s.awaitEvent("waits", `Failed: Error: configmap "later" not found`)
	s.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: later}\ndata: {key: here}\n")
	if p = s.awaitEnd("waits"); p.Status.Phase != corev1.PodSucceeded {
		s.Errorf("the pod is %s", p.Status.Phase)
	}
	if got := s.logs("waits", &corev1.PodLogOptions{}); got != "value=here\n" {
		s.Errorf("it says %q", got)
	}
}

func hostsFile(s *testNamespace) {
	p := newPod("known", sh("main", "cat /etc/hosts"))
	p.Spec.Subdomain, p.Spec.Hostname = "crew", "captain"
	p.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.7", Hostnames: []string{"one.example", "two.example"}}}
	got := s.output(p)
	ip := s.get("known").Status.PodIP
	if !strings.HasPrefix(got, "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n") || !strings.Contains(got, ip+"\tcaptain.crew."+s.name+".svc.cluster.local\tcaptain\n") ||
		!strings.Contains(got, "# Entries added by HostAliases.\n192.0.2.7\tone.example\ttwo.example\n") {
		s.Errorf("hosts of %s:\n%s", ip, got)
	}
	// On the node's network it is the node's file.
	q := newPod("host", sh("main", "cat /etc/hosts"))
	q.Spec.HostNetwork = true
	node, err := os.ReadFile("/etc/hosts")
	if err != nil {
		s.Fatal(err)
	}
	if got := s.output(q); !strings.HasPrefix(got, "# Kubernetes-managed hosts file (host network).\n") || !strings.Contains(got, strings.TrimSpace(string(node))) {
		s.Errorf("hosts on the host network:\n%s", got)
	}
}

// resolver returns what a resolv.conf says.
func resolver(text string) map[string][]string {
	m := map[string][]string{}
	for _, line := range lines(text) {
		if f := strings.Fields(line); len(f) > 1 && !strings.HasPrefix(line, "#") {
			m[f[0]] = append(m[f[0]], f[1:]...)
		}
	}
	return m
}

func resolvConf(s *testNamespace) {
	var host map[string][]string
	var usable []string
	for _, file := range []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"} { // the second counts where the first has only this machine's loopback
		data, err := os.ReadFile(file)
		if err != nil && host == nil {
			s.Fatal(err)
		}
		if err == nil && len(usable) == 0 {
			host = resolver(string(data))
			usable = slices.DeleteFunc(slices.Clone(host["nameserver"]), func(a string) bool { ip := net.ParseIP(a); return ip == nil || ip.IsLoopback() })
		}
	}
	own := []string{s.name + ".svc.cluster.local", "svc.cluster.local", "cluster.local"}
	for _, c := range []struct {
		name string
		set  func(*corev1.PodSpec)
		want map[string][]string
	}{
		{"clusterfirst", func(*corev1.PodSpec) {}, map[string][]string{"nameserver": {"10.43.0.10"}, "search": append(slices.Clone(own), host["search"]...), "options": {"ndots:5"}}},
		{"default", func(p *corev1.PodSpec) { p.DNSPolicy = corev1.DNSDefault }, map[string][]string{"nameserver": usable[:min(len(usable), 3)], "search": host["search"]}},
		{"host", func(p *corev1.PodSpec) { p.HostNetwork = true }, map[string][]string{"nameserver": usable[:min(len(usable), 3)], "search": host["search"]}},
		{"hostcluster", func(p *corev1.PodSpec) { p.HostNetwork = true; p.DNSPolicy = corev1.DNSClusterFirstWithHostNet }, map[string][]string{"nameserver": {"10.43.0.10"}, "options": {"ndots:5"}}},
		{"none", func(p *corev1.PodSpec) {
			p.DNSPolicy = corev1.DNSNone
			p.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.53"}, Searches: []string{"example.com"}, Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: new("2")}, {Name: "edns0"}}}
		}, map[string][]string{"nameserver": {"192.0.2.53"}, "search": {"example.com"}, "options": {"ndots:2", "edns0"}}},
	} {
		p := newPod(c.name, sh("main", "cat /etc/resolv.conf"))
		c.set(&p.Spec)
		got := resolver(s.output(p))
		for key, want := range c.want {
			if !slices.Equal(got[key], want) {
				s.Errorf("%s: %s is %q, want %q", c.name, key, got[key], want)
			}
		}
	}
}
