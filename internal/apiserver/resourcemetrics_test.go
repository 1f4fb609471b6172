package apiserver

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"skiff/internal/usage"
	"skiff/internal/usage/history"
)

const (
	nodeMetrics = "/apis/metrics.k8s.io/v1beta1/nodes"
	podMetrics  = "/apis/metrics.k8s.io/v1beta1/namespaces/test/pods"
)

// usingKubelet answers /stats/summary as a kubelet whose pod test/p uses half a core and 64 MiB, and whose node uses one core and 1 GiB.
func usingKubelet(t *testing.T) (host, port string, asked *atomic.Int32) {
	began := time.Now().Add(-time.Hour)
	asked = &atomic.Int32{}
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.String() != "/stats/summary?only_cpu_and_memory=true" {
			t.Errorf("the kubelet was asked %s", r.URL)
		}
		asked.Add(1)
		now := time.Now()
		used := func(cores float64, memory int) string {
			return fmt.Sprintf(`"startTime":%q,"cpu":{"time":%q,"usageCoreNanoSeconds":%d},"memory":{"time":%[2]q,"workingSetBytes":%[4]d}`,
				began.Format(time.RFC3339Nano), now.Format(time.RFC3339Nano), int64(cores*float64(now.Sub(began))), memory)
		}
		fmt.Fprintf(w, `{"node":{"nodeName":"n",%s},"pods":[{"podRef":{"name":"p","namespace":"test","uid":"u"},"containers":[{"name":"c",%s}]},`+
			`{"podRef":{"name":"ended","namespace":"test","uid":"v"},"containers":[{"name":"c"}]}]}`, used(1, 1<<30), used(0.5, 64<<20))
	}))
	t.Cleanup(kubelet.Close)
	at, err := url.Parse(kubelet.URL)
	if err != nil {
		t.Fatal(err)
	}
	return at.Hostname(), at.Port(), asked
}

func TestResourceMetrics(t *testing.T) {
	s := newTestServer(t, func(o *Options) { o.ResourceMetrics, o.Log = true, slog.New(slog.DiscardHandler) })
	host, port, asked := usingKubelet(t)
	s.node("n", host, port)
	s.node("away", "127.0.0.1", closedPort(t))
	s.pod("p", "x", `,"nodeName":"n"`)
	s.pod("ended", "x", `,"nodeName":"n"`)
	s.pod("lost", "x", `,"nodeName":"away"`)
	s.pod("waiting", "x", "")

	var pods metricsv1beta1.PodMetricsList
	s.get(podMetrics, &pods)
	if len(pods.Items) != 1 || pods.Items[0].Name != "p" || pods.Items[0].Namespace != "test" || pods.Items[0].Labels["app"] != "x" || pods.Kind != "PodMetricsList" {
		t.Fatalf("pods: %+v", pods)
	}
	p := pods.Items[0]
	if c := p.Containers; len(c) != 1 || c[0].Name != "c" || !between(c[0].Usage.Cpu().MilliValue(), 490, 510) || c[0].Usage.Memory().String() != "64Mi" {
		t.Errorf("containers: %+v", c)
	}
	if age := time.Since(p.Timestamp.Time); age < 0 || age > time.Minute || p.Window.Duration < time.Second || p.Window.Duration > time.Minute {
		t.Errorf("timestamp %v, window %v", p.Timestamp, p.Window)
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("the kubelet was asked %d times, want twice for the first", n)
	}

	// Whoever asks in the same moment gets the same numbers.
	var nodes metricsv1beta1.NodeMetricsList
	s.get(nodeMetrics, &nodes)
	if len(nodes.Items) != 1 || nodes.Items[0].Name != "n" || !between(nodes.Items[0].Usage.Cpu().MilliValue(), 990, 1010) || nodes.Items[0].Usage.Memory().String() != "1Gi" {
		t.Errorf("nodes: %+v", nodes.Items)
	}
	var one metricsv1beta1.PodMetrics
	s.get(podMetrics+"/p", &one)
	if one.Name != "p" || !one.Timestamp.Equal(&p.Timestamp) {
		t.Errorf("got %+v, want %+v", one, p)
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("the kubelet was asked %d times", n)
	}
	for query, want := range map[string]int{"?labelSelector=app%3Dx": 1, "?labelSelector=app%3Dy": 0, "?fieldSelector=metadata.name%3Dp": 1, "?fieldSelector=metadata.name%3Dq": 0} {
		if s.get(podMetrics+query, &pods); len(pods.Items) != want {
			t.Errorf("%s: %d, want %d", query, len(pods.Items), want)
		}
	}
	s.get("/apis/metrics.k8s.io/v1beta1/pods", &pods)
	if len(pods.Items) != 1 {
		t.Errorf("all namespaces: %+v", pods.Items)
	}

	s.expect(404, `pods "none" not found`, "GET", podMetrics+"/none", "")
	s.expect(404, `pods.metrics.k8s.io "test/waiting" not found`, "GET", podMetrics+"/waiting", "")
	s.expect(404, `nodes "none" not found`, "GET", nodeMetrics+"/none", "")
	s.expect(404, `nodes.metrics.k8s.io "away" not found`, "GET", nodeMetrics+"/away", "")
	s.expect(400, `"spec.nodeName" is not a known field selector: only "metadata.name", "metadata.namespace"`, "GET", podMetrics+"?fieldSelector=spec.nodeName%3Dn", "")
	s.expect(405, `watch is not supported on resources of kind "pods.metrics.k8s.io"`, "GET", podMetrics+"?watch=1", "")
	s.expect(405, "the server does not allow this method on the requested resource", "POST", podMetrics, "{}")
}

func between(n, least, most int64) bool { return n >= least && n <= most }

// Tables and protobuf are as metrics-server's.
func TestResourceMetricsForms(t *testing.T) {
	s := newTestServer(t, func(o *Options) {
		o.ResourceMetrics = true
		o.LocalUsage = func(node string) *usage.Reading {
			rate := func(n uint64) *uint64 { return &n }
			count := func(cpu, memory uint64) usage.Count {
				return usage.Count{At: time.Now(), Rate: rate(cpu), Memory: memory}
			}
			return &usage.Reading{Node: count(2_000_000, 3<<20), Containers: []usage.ContainerCount{
				{Namespace: "test", Pod: "p", Container: "a", Count: count(1_500_000, 1<<20)}, {Namespace: "test", Pod: "p", Container: "b", Count: count(500_000, 1<<10)}}}
		}
	})
	s.node("n", "127.0.0.1", "1")
	s.pod("p", "x", `,"nodeName":"n"`)
	const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"
	var table metav1.Table
	w := s.do("GET", podMetrics, "", "Accept", asTable)
	if err := json.Unmarshal(w.Body.Bytes(), &table); err != nil {
		t.Fatal(err)
	}
	var columns []string
	for _, c := range table.ColumnDefinitions {
		columns = append(columns, c.Name)
	}
	if got := fmt.Sprint(columns, table.Rows[0].Cells); got != "[Name cpu memory Window] [p 2m 1025Ki 15s]" {
		t.Error(got)
	}
	if w := s.do("GET", podMetrics+"?labelSelector=app%3Dnone", "", "Accept", asTable); !strings.Contains(w.Body.String(), `"rows":[]`) {
		t.Errorf("an empty table: %s", w.Body)
	}
	if w := s.do("GET", nodeMetrics+"/n", "", "Accept", asTable); !strings.Contains(w.Body.String(), `"cells":["n","2m","3Mi","15s"]`) {
		t.Errorf("a node's table: %s", w.Body)
	}
	w = s.do("GET", podMetrics+"/p", "", "Accept", "application/vnd.kubernetes.protobuf")
	if w.Code != 200 || !strings.HasPrefix(w.Body.String(), "k8s\x00") || !strings.Contains(w.Body.String(), "PodMetrics") {
		t.Errorf("protobuf: %d %q", w.Code, w.Body)
	}
	list := &metav1.APIResourceList{}
	s.get("/apis/metrics.k8s.io/v1beta1", list)
	if got := fmt.Sprint(list.APIResources); len(list.APIResources) != 2 || list.APIResources[0].Kind != "NodeMetrics" || list.APIResources[0].SingularName != "" ||
		fmt.Sprint(list.APIResources[1].Verbs) != "[get list]" {
		t.Errorf("discovery: %s", got)
	}
	var role struct {
		Metadata metav1.ObjectMeta
	}
	s.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/system:aggregated-metrics-reader", &role)
	if role.Metadata.Labels["rbac.authorization.k8s.io/aggregate-to-view"] != "true" {
		t.Errorf("role: %+v", role)
	}
}

// Without the option the group does not exist, and another server can have it.
func TestResourceMetricsOfAnother(t *testing.T) {
	s := newTestServer(t)
	if w := s.do("GET", podMetrics, ""); w.Code != 404 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	s.expect(404, `clusterroles.rbac.authorization.k8s.io "system:aggregated-metrics-reader" not found`, "GET",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/system:aggregated-metrics-reader", "")
	if w := s.do("GET", "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io", ""); w.Code != 404 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	s.must("POST", "/apis/apiregistration.k8s.io/v1/apiservices", metricsServerAPIService)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		w := s.do("GET", podMetrics, "")
		if w.Code == 503 { // its Service does not exist
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
}

const metricsServerAPIService = `{"metadata":{"name":"v1beta1.metrics.k8s.io"},"spec":{"group":"metrics.k8s.io","version":"v1beta1","groupPriorityMinimum":100,"versionPriority":100,
	"insecureSkipTLSVerify":true,"service":{"namespace":"kube-system","name":"metrics-server"}}}`

// While this server serves the group, an APIService does not take it away.
func TestResourceMetricsAreLocal(t *testing.T) {
	s := newTestServer(t, func(o *Options) { o.ResourceMetrics = true })
	const path = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io"
	eventually := func(what string, holds func() bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %s", what, s.do("GET", path, "").Body)
			}
		}
	}
	local := func() bool {
		text := s.do("GET", path, "").Body.String()
		return strings.Contains(text, `"groupPriorityMinimum":100,"versionPriority":100}`) && strings.Contains(text, `"message":"Local APIServices are always available"`)
	}
	eventually("the APIService is local", local)
	s.must("PATCH", path, metricsServerAPIService)
	eventually("the APIService is local again", func() bool { return local() && s.do("GET", podMetrics, "").Code == 200 })
	eventually("it is described", func() bool {
		text := s.do("GET", "/openapi/v3/apis/metrics.k8s.io/v1beta1", "").Body.String()
		return strings.Contains(text, "/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods/{name}") && strings.Contains(text, "The memory usage is the memory working set.")
	})
	eventually("it is described in OpenAPI v2", func() bool { // which is published apart
		return strings.Contains(s.do("GET", "/openapi/v2", "").Body.String(), "io.k8s.metrics.pkg.apis.metrics.v1beta1.PodMetrics")
	})
}

// What is measured is remembered by image.
func TestUsageHistory(t *testing.T) {
	h := history.Open(filepath.Join(t.TempDir(), "history"), slog.New(slog.DiscardHandler))
	s := newTestServer(t, func(o *Options) { o.ResourceMetrics, o.UsageHistory = true, h })
	host, port, _ := usingKubelet(t)
	s.node("n", host, port)
	s.pod("p", "x", `,"nodeName":"n"`)
	s.must("GET", podMetrics, "")
	cpu, n := h.Percentile(history.Query{Namespace: "test", Image: "i", Within: time.Hour}, history.CPU, 90, time.Now())
	if n != 1 || !between(int64(cpu/1_000_000), 490, 560) {
		t.Errorf("%d billionths of a core, %d numbers", cpu, n)
	}
}

// TestInitialResources has a pod get requests and limits by what containers of its image were measured to use, also after a restart.
func TestInitialResources(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history")
	h := history.Open(file, slog.New(slog.DiscardHandler))
	on := func(o *Options) {
		o.ResourceMetrics, o.UsageHistory, o.EnableAdmission = true, h, []string{"InitialResources"}
	}
	s := newTestServer(t, on)
	host, port, _ := usingKubelet(t)
	s.node("n", host, port)
	s.pod("p", "x", `,"nodeName":"n"`)
	resources := func(name string) *corev1.ResourceRequirements {
		t.Helper()
		var pod corev1.Pod
		if err := json.Unmarshal([]byte(s.must("POST", "/api/v1/namespaces/test/pods", `{"metadata":{"name":"`+name+`"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)), &pod); err != nil {
			t.Fatal(err)
		}
		return &pod.Spec.Containers[0].Resources
	}
	s.must("GET", podMetrics, "")
	if r := resources("early"); len(r.Requests) > 0 || len(r.Limits) > 0 {
		t.Errorf("one number is enough for %+v", r)
	}
	query := history.Query{Namespace: "test", Image: "i", Within: time.Hour}
	cpu, _ := h.Percentile(query, history.CPU, 90, time.Now())
	memory, _ := h.Percentile(query, history.Memory, 90, time.Now())
	for range 30 { // a kubelet is measured every 15 s at most
		h.Add("test", "i", time.Now(), cpu, memory)
	}
	check := func(name string) {
		t.Helper()
		r := resources(name)
		if !between(r.Requests.Cpu().MilliValue(), 490, 620) || !between(r.Requests.Memory().Value(), 64<<20, 78<<20) ||
			!between(r.Limits.Cpu().MilliValue(), 980, 1240) || !between(r.Limits.Memory().Value(), 128<<20, 156<<20) {
			t.Errorf("of half a core and 64 MiB it made %+v", r)
		}
	}
	check("later")
	if err := h.Save(); err != nil {
		t.Fatal(err)
	}
	h = history.Open(file, slog.New(slog.DiscardHandler))
	s = newTestServer(t, on)
	check("again")
}
