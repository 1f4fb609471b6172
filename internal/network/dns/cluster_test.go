package dns

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"skiff/internal/apiserver"
	"skiff/internal/apitest"
)

// testTimeout bounds every wait. Usually waits take a hundredth of it; test machines can be slow.
const testTimeout = 30 * time.Second

// newCluster starts an API server with the objects of testdata/cluster.yaml, with SERVER replaced by the address of the DNS server.
func newCluster(t testing.TB, server string) *apitest.Server {
	t.Helper()
	api := apitest.Start(t, apitest.WithServer(func(o *apiserver.Options) { o.ServiceCIDRs = []string{"10.0.0.0/24", "fd00:43::/112"} }))
	data, err := os.ReadFile("testdata/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(strings.ReplaceAll(string(data), "SERVER", server), "\n---\n") {
		create(t, api.Client(), document)
	}
	return api
}

func create(t testing.TB, c kubernetes.Interface, document string) {
	t.Helper()
	var kind metav1.TypeMeta
	err := yaml.Unmarshal([]byte(document), &kind)
	switch kind.Kind {
	case "Namespace":
		var obj corev1.Namespace
		if err = yaml.UnmarshalStrict([]byte(document), &obj); err == nil {
			_, err = c.CoreV1().Namespaces().Create(t.Context(), &obj, metav1.CreateOptions{})
		}
	case "Service":
		var obj corev1.Service
		if err = yaml.UnmarshalStrict([]byte(document), &obj); err == nil {
			_, err = c.CoreV1().Services(obj.Namespace).Create(t.Context(), &obj, metav1.CreateOptions{})
		}
	case "EndpointSlice":
		var obj discoveryv1.EndpointSlice
		if err = yaml.UnmarshalStrict([]byte(document), &obj); err == nil {
			_, err = c.DiscoveryV1().EndpointSlices(obj.Namespace).Create(t.Context(), &obj, metav1.CreateOptions{})
		}
	default:
		t.Fatalf("%q: %v", document, err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, document)
	}
}

// serve runs a DNS server until the test ends, and returns when it is ready. prepare may change the server before it runs.
func serve(t testing.TB, o Options, prepare ...func(*Server)) *Server {
	t.Helper()
	if o.Listen == nil {
		o.Listen = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range prepare {
		f(s)
	}
	run(t, s)
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := s.WaitReady(ctx); err != nil {
		t.Fatal("the DNS server is not ready: ", err)
	}
	return s
}

func run(t testing.TB, s *Server) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// asNode returns options for a server with the rights of a node.
func asNode(api *apitest.Server, upstreams ...netip.AddrPort) Options {
	return Options{Client: api.InProcess("dns", "system:node:n1", "system:nodes", "system:authenticated"), NodeName: "n1", Upstreams: upstreams}
}

// eventually waits until holds returns an empty string; it fails the test with the last one that holds returned.
func eventually(t testing.TB, holds func() (missing string)) {
	t.Helper()
	var missing string
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if missing = holds(); missing == "" {
			return
		}
	}
	t.Fatalf("not within %v: %s", testTimeout, missing)
}
