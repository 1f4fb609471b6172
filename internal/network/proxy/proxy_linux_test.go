package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"skiff/internal/apitest"
	"skiff/internal/client"
	"skiff/internal/network/proxy/proxytest"
)

func TestMain(m *testing.M) { proxytest.Main(m) }

// node is a node with an API server, on which tests run a proxy.
type node struct {
	*proxytest.Cluster
	api    kubernetes.Interface
	server *apitest.Server

	mu         sync.Mutex
	programmed []string
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{Cluster: proxytest.NewCluster(t, proxytest.Options{Clean: Clean}), server: apitest.Start(t)}
	n.api = n.server.Client()
	_, err := n.api.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "here", Labels: map[string]string{corev1.LabelTopologyZone: "a"}},
	}, metav1.CreateOptions{})
	must(t, err)
	return n
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run runs a proxy until stop is called.
func (n *node) run(t *testing.T, c *client.Client, change func(*Options)) (stop func()) {
	t.Helper()
	o := Options{
		Client: c, NodeName: "here", NodeIPs: n.Config.NodeIPs, ClusterCIDRs: n.Config.ClusterCIDRs, SyncPeriod: 200 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Programmed: func(o metav1.Object, seen, done time.Time) {
			n.mu.Lock()
			defer n.mu.Unlock()
			if !done.Before(seen) {
				n.programmed = append(n.programmed, o.GetName())
			}
		},
	}
	if change != nil {
		change(&o)
	}
	p, err := New(o)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the proxy ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// create creates a Service with an EndpointSlice of some pods.
func (n *node) create(t *testing.T, s *corev1.Service, pods ...int) *corev1.Service {
	t.Helper()
	s.Namespace = "default"
	s.Spec.Ports = []corev1.ServicePort{{Name: "t", Port: 80}}
	s, err := n.api.CoreV1().Services("default").Create(t.Context(), s, metav1.CreateOptions{})
	must(t, err)
	_, err = n.api.DiscoveryV1().EndpointSlices("default").Create(t.Context(), slice(s.Name, pods...), metav1.CreateOptions{})
	must(t, err)
	return s
}

func slice(service string, pods ...int) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: service + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("t"), Port: ptr.To(int32(8080)), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	for _, i := range pods {
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{Addresses: []string{proxytest.PodIP(i)}, NodeName: ptr.To("here")})
	}
	return out
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come to pass", what)
		}
	}
}

// answers waits until a pod answers at an address.
func (n *node) answers(t *testing.T, address, who string) {
	t.Helper()
	eventually(t, who+" answers at "+address, func() bool {
		got, err := n.Outside.Ask("tcp", address, time.Second)
		return err == nil && got.Who == who
	})
}

// TestFromTheAPI: the whole path: objects in the API, watched in the same process and over the network, and packets on the node.
func TestFromTheAPI(t *testing.T) {
	n := newNode(t)
	for name, c := range map[string]*client.Client{
		"here":  n.server.InProcess("kube-proxy", "system:kube-proxy"),
		"there": n.server.Remote("kube-proxy", "system:kube-proxy"),
	} {
		t.Run(name, func(t *testing.T) {
			n.programmed = nil
			early := n.create(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "early-" + name}}, 0)
			stop := n.run(t, c, func(o *Options) { o.Standalone = name == "there" })
			n.answers(t, early.Spec.ClusterIP+":80", "pod0")
			s := n.create(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web-" + name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort}}, 1)
			n.answers(t, s.Spec.ClusterIP+":80", "pod1")
			n.answers(t, fmt.Sprintf("%s:%d", proxytest.NodeIP, s.Spec.Ports[0].NodePort), "pod1")
			_, err := n.api.DiscoveryV1().EndpointSlices("default").Update(t.Context(), slice(s.Name, 2), metav1.UpdateOptions{})
			must(t, err)
			n.answers(t, s.Spec.ClusterIP+":80", "pod2")
			n.mu.Lock()
			for _, want := range []string{"web-" + name, "web-" + name + "-1"} {
				if !slices.Contains(n.programmed, want) {
					t.Errorf("%s is in effect, but nobody was told: %v", want, n.programmed)
				}
			}
			if slices.Contains(n.programmed, "early-"+name) {
				t.Error("what was there before was told of")
			}
			n.mu.Unlock()

			stop() // traffic goes on
			n.answers(t, s.Spec.ClusterIP+":80", "pod2")
			_, err = n.api.DiscoveryV1().EndpointSlices("default").Update(t.Context(), slice(s.Name, 0), metav1.UpdateOptions{})
			must(t, err)
			stop = n.run(t, c, nil)
			n.answers(t, s.Spec.ClusterIP+":80", "pod0")
			must(t, n.api.CoreV1().Services("default").Delete(t.Context(), s.Name, metav1.DeleteOptions{}))
			eventually(t, "the Service is gone", func() bool {
				_, err := n.Outside.Ask("tcp", s.Spec.ClusterIP+":80", 200*time.Millisecond)
				return err != nil
			})
			stop()
		})
	}
}

// TestOthers: Services of other proxies are ignored, foreign rules stay, and removed rules are restored.
func TestOthers(t *testing.T) {
	n := newNode(t)
	c, err := nftables.New()
	must(t, err)
	theirs := c.AddTable(&nftables.Table{Name: "theirs", Family: nftables.TableFamilyINet})
	c.AddChain(&nftables.Chain{Name: "chain", Table: theirs})
	must(t, c.Flush())
	labelled := n.create(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "labelled", Labels: map[string]string{proxyNameLabel: "mesh"}}}, 0)
	mine := n.create(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, 1)
	stop := n.run(t, n.server.InProcess("kube-proxy", "system:kube-proxy"), nil)
	n.answers(t, mine.Spec.ClusterIP+":80", "pod1")
	if got, err := n.Outside.Ask("tcp", labelled.Spec.ClusterIP+":80", 200*time.Millisecond); err == nil {
		t.Errorf("%v answers for a Service that somebody else serves", got)
	}
	must(t, Clean())
	n.answers(t, mine.Spec.ClusterIP+":80", "pod1")
	stop()
	must(t, Clean())
	chains, err := c.ListChains()
	must(t, err)
	if len(chains) != 1 || chains[0].Table.Name != "theirs" {
		t.Errorf("of all rules only theirs should be left: %v", chains)
	}
	c.DelTable(theirs)
	must(t, c.Flush())
}

// TestNodeAddress: a proxy without NodeIPs waits until the Node has an address.
func TestNodeAddress(t *testing.T) {
	n := newNode(t)
	s := n.create(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort}}, 0)
	n.run(t, n.server.Remote("kube-proxy", "system:kube-proxy"), func(o *Options) { o.NodeIPs = nil })
	at := fmt.Sprintf("%s:%d", proxytest.NodeIP, s.Spec.Ports[0].NodePort)
	if got, err := n.Outside.Ask("tcp", at, 300*time.Millisecond); err == nil {
		t.Errorf("%v answers at an address that nobody knows", got)
	}
	node, err := n.api.CoreV1().Nodes().Get(t.Context(), "here", metav1.GetOptions{})
	must(t, err)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "here"}, {Type: corev1.NodeInternalIP, Address: proxytest.NodeIP}}
	_, err = n.api.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
	must(t, err)
	n.answers(t, at, "pod0")
}

func TestHealth(t *testing.T) {
	n := newNode(t)
	s := n.create(t, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "lb"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal},
	}, 0, 1)
	n.run(t, n.server.InProcess("kube-proxy", "system:kube-proxy"), func(o *Options) {
		o.HealthzAddress, o.MetricsAddress = "127.0.0.1:10256", "127.0.0.1:10249"
	})
	check := fmt.Sprintf("http://%s:%d/", proxytest.NodeIP, s.Spec.HealthCheckNodePort)
	eventually(t, "the health check answers", func() bool { code, _, _ := get(check); return code == http.StatusOK })
	code, header, body := get(check)
	var answer struct {
		Service             struct{ Namespace, Name string }
		LocalEndpoints      int
		ServiceProxyHealthy bool
	}
	must(t, json.Unmarshal([]byte(body), &answer))
	if code != 200 || header.Get("X-Load-Balancing-Endpoint-Weight") != "2" || answer.LocalEndpoints != 2 || !answer.ServiceProxyHealthy || answer.Service.Name != "lb" {
		t.Errorf("%d %v %s", code, header, body)
	}
	_, err := n.api.DiscoveryV1().EndpointSlices("default").Update(t.Context(), slice("lb"), metav1.UpdateOptions{})
	must(t, err)
	eventually(t, "the node is not to be asked any more", func() bool { code, _, _ := get(check); return code == http.StatusServiceUnavailable })

	if code, _, body := get("http://127.0.0.1:10256/healthz"); code != 200 || !strings.Contains(body, `"nodeEligible":true`) {
		t.Errorf("healthz: %d %s", code, body)
	}
	node, err := n.api.CoreV1().Nodes().Get(t.Context(), "here", metav1.GetOptions{})
	must(t, err)
	node.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Effect: corev1.TaintEffectNoSchedule}}
	_, err = n.api.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
	must(t, err)
	eventually(t, "a node that is about to go is not healthy", func() bool { code, _, _ := get("http://127.0.0.1:10256/healthz"); return code == 503 })
	if code, _, _ := get("http://127.0.0.1:10256/livez"); code != 200 {
		t.Errorf("but it lives: %d", code)
	}
	_, _, body = get("http://127.0.0.1:10249/metrics")
	for _, want := range []string{"kubeproxy_sync_proxy_rules_duration_seconds_count", "kubeproxy_sync_full_proxy_rules_duration_seconds_count 1",
		`kubeproxy_sync_proxy_rules_no_local_endpoints_total{traffic_policy="external"} 0`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in\n%s", want, body)
		}
	}
	if _, _, body := get("http://127.0.0.1:10249/metrics/slis"); !strings.Contains(body, "\nprocess_start_time_seconds ") {
		t.Errorf("/metrics/slis: %q", body)
	}
	if _, _, body := get("http://127.0.0.1:10249/proxyMode"); body != "nftables" {
		t.Errorf("mode %q", body)
	}
}

func get(url string) (int, http.Header, string) {
	c := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := c.Get(url)
	if err != nil {
		return 0, nil, err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, nil, err.Error()
	}
	return answer.StatusCode, answer.Header, string(body)
}

func TestRefused(t *testing.T) {
	c := &client.Client{}
	for name, o := range map[string]Options{
		"mode":       {Client: c, NodeName: "n", Mode: "ipvs"},
		"node":       {Client: c},
		"client":     {NodeName: "n"},
		"loopback":   {Client: c, NodeName: "n", NodeIPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}},
		"two of one": {Client: c, NodeName: "n", NodeIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}},
		"range":      {Client: c, NodeName: "n", ClusterCIDRs: []netip.Prefix{{}}},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestModeChange: a proxy in another mode removes the rules of the mode before.
func TestModeChange(t *testing.T) {
	n := newNode(t)
	s := n.create(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, 0)
	tables := func() string {
		c, err := nftables.New()
		must(t, err)
		chains, err := c.ListChains()
		must(t, err)
		var out []string
		for _, chain := range chains {
			for start, mode := range map[string]string{"dispatch": "nftables", "KUBE-SVC": "iptables", "SKIFF-SVC": "userspace"} {
				if strings.HasPrefix(chain.Name, start) {
					out = append(out, mode)
				}
			}
		}
		slices.Sort(out)
		return strings.Join(slices.Compact(out), " ")
	}
	before := ""
	for _, mode := range []string{"nftables", "iptables", "nftables", "userspace", "iptables", "nftables"} {
		stop := n.run(t, n.server.InProcess("kube-proxy", "system:kube-proxy"), func(o *Options) { o.Mode = mode })
		if before != "" && before != "userspace" { // the rules of that mode keep serving meanwhile
			if got, err := n.Pods[1].Ask("tcp", s.Spec.ClusterIP+":80", 10*time.Second); err != nil || got.Who != "pod0" {
				t.Errorf("as %s begins: %v, %v", mode, got, err)
			}
		}
		eventually(t, mode+" alone", func() bool { return tables() == mode })
		n.answers(t, s.Spec.ClusterIP+":80", "pod0")
		stop()
		before = mode
	}
	must(t, Clean())
	if left := tables(); left != "" {
		t.Errorf("left over: %s", left)
	}

	// Rules of iptables mode without skiff's mark are a kube-proxy's.
	c, err := nftables.New()
	must(t, err)
	theirs := c.AddTable(&nftables.Table{Name: "nat", Family: nftables.TableFamilyIPv4})
	c.AddChain(&nftables.Chain{Name: "KUBE-SVC-1", Table: theirs})
	must(t, c.Flush())
	must(t, Clean())
	if left := tables(); left != "iptables" {
		t.Errorf("a kube-proxy's rules are gone: %q", left)
	}
	c.DelTable(theirs)
	must(t, c.Flush())
}
