package metrics

import (
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"

	"skiff/internal/apiserver/request"
	"skiff/internal/slis"
)

// Metrics has the metrics of the API server, under upstream's names and labels.
type Metrics struct {
	Registry   *prometheus.Registry
	requests   *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	sliSeconds *prometheus.HistogramVec
	sizes      *prometheus.HistogramVec
	watches    *prometheus.GaugeVec
	Deprecated *prometheus.GaugeVec
	Storage    Storage
	series     atomic.Pointer[map[requestKind]*requestSeries] // replaced as a whole when a kind is added

	// Checks counts the results of health checks, for /metrics/slis.
	Checks *slis.Metrics

	mu         sync.Mutex
	components []prometheus.Gatherer // of components in this process
}

// requestKind is the labels of requests that are counted together.
type requestKind struct {
	verb, dryRun, group, version, resource, subresource, scope string
	code                                                       int
}

// requestSeries has the series in which requests of one kind are counted. It is kept since looking series up by labels takes longer than counting.
type requestSeries struct {
	count                      prometheus.Counter
	seconds, sliSeconds, sizes prometheus.Observer
}

// ComponentName is what upstream calls this server in the label component.
const ComponentName = "apiserver"

// latencies are the bounds of upstream's histograms of latencies, in seconds.
var latencies = []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}

// New returns metrics, among them kubernetes_build_info for the given build.
func New(build version.Info) *Metrics {
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "apiserver_request_total",
			Help: "Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, component, and HTTP response code."},
			[]string{"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "apiserver_request_duration_seconds",
			Help:    "Response latency distribution in seconds for each verb, dry run value, group, version, resource, subresource, scope and component.",
			Buckets: latencies},
			[]string{"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component"}),
		sliSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "apiserver_request_sli_duration_seconds",
			Help:    "Response latency distribution (not counting the wait for a place) in seconds for each verb, group, version, resource, subresource, scope and component.",
			Buckets: latencies[2:]},
			[]string{"verb", "group", "version", "resource", "subresource", "scope", "component"}),
		sizes: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "apiserver_response_sizes",
			Help:    "Response size distribution in bytes for each group, version, verb, resource, subresource, scope and component.",
			Buckets: prometheus.ExponentialBuckets(1000, 10, 7)},
			[]string{"verb", "group", "version", "resource", "subresource", "scope", "component"}),
		watches: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "apiserver_longrunning_requests",
			Help: "Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope and component."},
			[]string{"verb", "group", "version", "resource", "subresource", "scope", "component"}),
		Deprecated: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "apiserver_requested_deprecated_apis",
			Help: "Gauge of deprecated APIs that have been requested, broken out by API group, version, resource, subresource, and removed_release."},
			[]string{"group", "version", "resource", "subresource", "removed_release"}),
		Checks: slis.New(),
	}
	m.Storage = newStorage(m.Registry)
	m.series.Store(&map[requestKind]*requestSeries{})
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubernetes_build_info",
		Help: "A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
		ConstLabels: prometheus.Labels{"major": build.Major, "minor": build.Minor, "git_version": build.GitVersion, "git_commit": build.GitCommit, "git_tree_state": build.GitTreeState,
			"build_date": build.BuildDate, "go_version": build.GoVersion, "compiler": build.Compiler, "platform": build.Platform}})
	info.Set(1)
	m.Registry.MustRegister(m.requests, m.seconds, m.sliSeconds, m.sizes, m.watches, m.Deprecated, info,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Answer has what is counted of the response to a request.
type Answer struct {
	Code   int
	Size   int64
	Took   time.Duration // from the first filter to the end of the response
	Waited time.Duration // for a seat, within Took
}

// Observe counts a request that has been answered.
func (m *Metrics) Observe(r *http.Request, rt request.Route, answer Answer) {
	kind := requestKind{verb: metricVerb(r, rt), dryRun: metricDryRun(r.URL), scope: metricScope(rt), code: answer.Code}
	if rt.Resource {
		kind.group, kind.version, kind.resource, kind.subresource = rt.Group, rt.Version, rt.Plural, rt.Subresource
	}
	series := m.of(kind)
	series.count.Inc()
	series.seconds.Observe(answer.Took.Seconds())
	if series.sliSeconds != nil {
		series.sliSeconds.Observe((answer.Took - answer.Waited).Seconds())
	}
	if series.sizes != nil {
		series.sizes.Observe(float64(answer.Size))
	}
}

// of returns the series of a kind of requests. The number of kinds is bounded by the endpoints, verbs and status codes of the server: see
// verbs.API.Served.
func (m *Metrics) of(k requestKind) *requestSeries {
	if known := (*m.series.Load())[k]; known != nil {
		return known
	}
	s := &requestSeries{
		count:   m.requests.WithLabelValues(k.verb, k.dryRun, k.group, k.version, k.resource, k.subresource, k.scope, ComponentName, strconv.Itoa(k.code)),
		seconds: m.seconds.WithLabelValues(k.verb, k.dryRun, k.group, k.version, k.resource, k.subresource, k.scope, ComponentName),
	}
	if k.dryRun == "" {
		s.sliSeconds = m.sliSeconds.WithLabelValues(k.verb, k.group, k.version, k.resource, k.subresource, k.scope, ComponentName)
	}
	if k.verb == http.MethodGet || k.verb == "LIST" {
		s.sizes = m.sizes.WithLabelValues(k.verb, k.group, k.version, k.resource, k.subresource, k.scope, ComponentName)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	all := maps.Clone(*m.series.Load())
	all[k] = s
	m.series.Store(&all)
	return s
}

// Long counts a request as long-running until the returned function is called.
func (m *Metrics) Long(verb string, rt request.Route) (done func()) {
	open := m.watches.WithLabelValues(verb, rt.Group, rt.Version, rt.Plural, rt.Subresource, metricScope(rt), ComponentName)
	open.Inc()
	return open.Dec
}

func metricVerb(r *http.Request, rt request.Route) string {
	if rt.Resource && rt.Connects() {
		return "CONNECT"
	}
	switch rt.Verb {
	case "list":
		return "LIST"
	case "watch":
		return "WATCH"
	case "get":
		return http.MethodGet
	case "create":
		return http.MethodPost
	case "update":
		return http.MethodPut
	case "patch":
		if r.Header.Get("Content-Type") == string(types.ApplyYAMLPatchType) {
			return "APPLY"
		}
		return http.MethodPatch
	case "delete":
		return http.MethodDelete
	case "deletecollection":
		return "DELETECOLLECTION"
	}
	switch r.Method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead, http.MethodOptions:
		return r.Method
	}
	return "other"
}

func metricScope(rt request.Route) string {
	switch {
	case !rt.Resource:
		return ""
	case rt.Name != "":
		return "resource"
	case rt.Namespace != "":
		return "namespace"
	}
	return "cluster"
}

func metricDryRun(u *url.URL) string {
	if !strings.Contains(u.RawQuery, "dryRun") {
		return ""
	}
	values := u.Query()["dryRun"]
	if len(validation.ValidateDryRun(nil, values)) > 0 {
		return "invalid"
	}
	if len(values) == 0 {
		return ""
	}
	return metav1.DryRunAll // the only valid value
}

// Add adds the metrics of a component in this process to those that Gatherers returns.
func (m *Metrics) Add(g prometheus.Gatherer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.components = append(m.components, g)
}

// Gatherers returns the server's metrics and those of the components in this process.
func (m *Metrics) Gatherers() prometheus.Gatherers {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append(prometheus.Gatherers{m.Registry}, m.components...)
}
