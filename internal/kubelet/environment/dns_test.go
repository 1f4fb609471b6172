package environment

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func resolver(servers, searches string) *runtimeapi.DNSConfig {
	return &runtimeapi.DNSConfig{Servers: strings.Fields(servers), Searches: strings.Fields(searches), Options: []string{"timeout:3", "ndots:1"}}
}

// show writes a configuration as servers | searches | options.
func show(c *runtimeapi.DNSConfig) string {
	return strings.Join(c.GetServers(), " ") + " | " + strings.Join(c.GetSearches(), " ") + " | " + strings.Join(c.GetOptions(), " ")
}

func TestDNS(t *testing.T) {
	whole := Resolver{ClusterDNS: []string{"10.43.0.10"}, ClusterDomain: "cluster.local", Host: resolver("8.8.8.8", "example.com svc.cluster.local")}
	loopback := Resolver{ClusterDNS: whole.ClusterDNS, ClusterDomain: "cluster.local", Host: resolver("127.0.0.53 ::1", "example.com")}
	mixed := Resolver{Host: resolver("127.0.0.53 1.1.1.1 ::ffff:127.0.0.1", "")}
	cluster := "10.43.0.10 | n.svc.cluster.local svc.cluster.local cluster.local example.com | ndots:5"
	own := &corev1.PodDNSConfig{Nameservers: []string{"1.2.3.4", "8.8.8.8"}, Searches: []string{"example.com", "own"},
		Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr("2")}, {Name: "edns0"}, {Name: "timeout"}}}
	for name, c := range map[string]struct {
		r       Resolver
		policy  corev1.DNSPolicy
		hostNet bool
		own     *corev1.PodDNSConfig
		want    string
		warned  string
	}{
		"cluster first":                                     {whole, corev1.DNSClusterFirst, false, nil, cluster, ""},
		"a policy that does not exist":                      {whole, "Sometimes", false, nil, cluster, ""},
		"cluster first means default on the host's network": {whole, corev1.DNSClusterFirst, true, nil, "8.8.8.8 | example.com svc.cluster.local | timeout:3 ndots:1", ""},
		"cluster first with the host's network":             {whole, corev1.DNSClusterFirstWithHostNet, true, nil, cluster, ""},
		"default":                                           {whole, corev1.DNSDefault, false, nil, "8.8.8.8 | example.com svc.cluster.local | timeout:3 ndots:1", ""},
		"none":                                              {whole, corev1.DNSNone, false, own, "1.2.3.4 8.8.8.8 | example.com own | ndots:2 edns0 timeout", ""},
		"cluster first with more":                           {whole, corev1.DNSClusterFirst, false, own, "10.43.0.10 1.2.3.4 8.8.8.8 | n.svc.cluster.local svc.cluster.local cluster.local example.com own | ndots:2 edns0 timeout", ""},
		"default with more":                                 {whole, corev1.DNSDefault, false, own, "8.8.8.8 1.2.3.4 | example.com svc.cluster.local own | timeout ndots:2 edns0", ""},
		"no domain":                                         {Resolver{ClusterDNS: []string{"10.43.0.10"}, Host: whole.Host}, corev1.DNSClusterFirst, false, nil, "10.43.0.10 | example.com svc.cluster.local | ndots:5", ""},
		"the node's resolver listens only on its loopback": {loopback, corev1.DNSDefault, false, nil, "10.43.0.10 | example.com | timeout:3 ndots:1", ""},
		"on the host's network the loopback answers":       {loopback, corev1.DNSDefault, true, nil, "127.0.0.53 ::1 | example.com | timeout:3 ndots:1", ""},
		"one of the node's resolvers is on its loopback":   {mixed, corev1.DNSDefault, false, nil, "1.1.1.1 |  | timeout:3 ndots:1", ""},
		"the node has none":                                {Resolver{}, corev1.DNSDefault, false, nil, " | . | ", ""},
		"no cluster DNS": {Resolver{Host: whole.Host}, corev1.DNSClusterFirst, false, nil, "8.8.8.8 | example.com svc.cluster.local | timeout:3 ndots:1",
			`MissingClusterDNS pod: "p_n(u)". kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. Falling back to "Default" policy.`},
		"too many servers": {whole, corev1.DNSNone, false, &corev1.PodDNSConfig{Nameservers: []string{"1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"}}, "1.1.1.1 2.2.2.2 3.3.3.3 |  | ",
			"DNSConfigForming Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 1.1.1.1 2.2.2.2 3.3.3.3"},
		"a search path that is too long": {whole, corev1.DNSNone, false, &corev1.PodDNSConfig{Searches: []string{"a", strings.Repeat("x", 254), "b"}}, " | a b | ",
			"DNSConfigForming Search Line limits were exceeded, some search paths have been omitted, the applied search line is: a b"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "u"}, Spec: corev1.PodSpec{DNSPolicy: c.policy, HostNetwork: c.hostNet, DNSConfig: c.own}}
		before := show(c.r.Host)
		got, warnings := c.r.DNS(pod)
		if show(got) != c.want {
			t.Errorf("%s: %s, want %s", name, show(got), c.want)
		}
		var said []string
		for _, w := range warnings {
			said = append(said, w.Reason+" "+w.Message)
		}
		if strings.Join(said, "; ") != c.warned {
			t.Errorf("%s: warned %q, want %q", name, said, c.warned)
		}
		if show(c.r.Host) != before {
			t.Errorf("%s: the node's own configuration became %s", name, show(c.r.Host))
		}
	}
}

func TestDNSLimits(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{DNSPolicy: corev1.DNSNone, DNSConfig: &corev1.PodDNSConfig{}}}
	for i := range 40 {
		pod.Spec.DNSConfig.Searches = append(pod.Spec.DNSConfig.Searches, fmt.Sprintf("s%d", i))
	}
	if got, warnings := (Resolver{}).DNS(pod); len(got.Searches) != 32 || got.Searches[31] != "s31" || len(warnings) != 1 {
		t.Errorf("%d searches, %v", len(got.Searches), warnings)
	}
	pod.Spec.DNSConfig.Searches = nil
	for i := range 20 {
		pod.Spec.DNSConfig.Searches = append(pod.Spec.DNSConfig.Searches, fmt.Sprintf("%02d%s", i, strings.Repeat("x", 198)))
	}
	if got, warnings := (Resolver{}).DNS(pod); len(got.Searches) != 10 || len(warnings) != 1 { // ten of 200 and nine blanks are 2009 characters
		t.Errorf("%d searches, %v", len(got.Searches), warnings)
	}
}

func TestParseResolvConf(t *testing.T) {
	got, err := ParseResolvConf(strings.NewReader("# comment\n\nnameserver 1.1.1.1\n nameserver\t2.2.2.2 # x\nsearch first\nsearch . a.example. b\noptions ndots:2 timeout:1\noptions ndots:3\nsortlist x\n"))
	if err != nil || show(got) != "1.1.1.1 2.2.2.2 | a.example b | ndots:3 timeout:1" {
		t.Errorf("%s %v", show(got), err)
	}
	if _, err := ParseResolvConf(strings.NewReader("nameserver\n")); err == nil {
		t.Error("a line without a server")
	}
	if got, err := ParseResolvConf(strings.NewReader("")); err != nil || show(got) != " |  | " {
		t.Errorf("%v %v", got, err)
	}
}

func TestHostResolver(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	stub, real, empty, bad := file("stub", "nameserver 127.0.0.53\n"), file("real", "nameserver 1.1.1.1\n"), file("empty", ""), file("bad", "nameserver\n")
	none := filepath.Join(dir, "none")
	for _, c := range []struct {
		files []string
		want  string
	}{{[]string{real, stub}, "1.1.1.1"}, {[]string{stub, real}, "1.1.1.1"}, {[]string{stub, none}, "127.0.0.53"}, {[]string{stub, bad, real}, "1.1.1.1"},
		{[]string{empty, none}, ""}, {[]string{none, real}, "error"}, {[]string{bad, real}, "error"}, {nil, ""}} {
		got, err := HostResolver(c.files...)
		if said := strings.Join(got.GetServers(), " "); err == nil && said != c.want || err != nil && c.want != "error" {
			t.Errorf("%v: %s %v, want %s", c.files, said, err, c.want)
		}
	}
}
