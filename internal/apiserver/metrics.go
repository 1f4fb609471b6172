package apiserver

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
	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/apiserver/request"
	"skiff/internal/cache"
	"skiff/internal/slis"
)

// metrics carry upstream's names and labels, so that existing dashboards and alerts work.
type metrics struct {
	registry   *prometheus.Registry
	requests   *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	sliSeconds *prometheus.HistogramVec
	sizes      *prometheus.HistogramVec
	watches    *prometheus.GaugeVec
	deprecated *prometheus.GaugeVec
	storage    storageMetrics
	series     atomic.Pointer[map[requestKind]*requestSeries] // replaced when there is a new kind

	// What /metrics/slis shows: how the checks of health went.
	checks *slis.Metrics

	mu   sync.Mutex
	also []prometheus.Gatherer // of components in this process
}

// requestKind is what requests that are counted together have in common.
type requestKind struct {
	verb, dryRun, group, version, resource, subresource, scope string
	code                                                       int
}

// requestSeries is where requests of one kind are counted. Finding that by labels takes longer than counting.
type requestSeries struct {
	count                      prometheus.Counter
	seconds, sliSeconds, sizes prometheus.Observer
}

// componentName is what upstream calls this server.
const componentName = "apiserver"

// latencies are the bounds that upstream's dashboards count in.
var latencies = []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
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
		deprecated: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "apiserver_requested_deprecated_apis",
			Help: "Gauge of deprecated APIs that have been requested, broken out by API group, version, resource, subresource, and removed_release."},
			[]string{"group", "version", "resource", "subresource", "removed_release"}),
		checks: slis.New(),
	}
	m.storage = newStorageMetrics(m.registry)
	m.series.Store(&map[requestKind]*requestSeries{})
	v := versionInfo()
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubernetes_build_info",
		Help: "A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
		ConstLabels: prometheus.Labels{"major": v.Major, "minor": v.Minor, "git_version": v.GitVersion, "git_commit": v.GitCommit, "git_tree_state": v.GitTreeState,
			"build_date": v.BuildDate, "go_version": v.GoVersion, "compiler": v.Compiler, "platform": v.Platform}})
	build.Set(1)
	m.registry.MustRegister(m.requests, m.seconds, m.sliSeconds, m.sizes, m.watches, m.deprecated, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// observe counts a request that has been answered. It waited so long for a place.
func (m *metrics) observe(r *http.Request, rt request.Route, w *responseWriter, took, waited time.Duration) {
	kind := requestKind{verb: metricVerb(r, rt), dryRun: metricDryRun(r.URL), scope: metricScope(rt), code: w.code()}
	if rt.Resource {
		kind.group, kind.version, kind.resource, kind.subresource = rt.Group, rt.Version, rt.Plural, rt.Subresource
	}
	series := m.of(kind)
	series.count.Inc()
	series.seconds.Observe(took.Seconds())
	if series.sliSeconds != nil {
		series.sliSeconds.Observe((took - waited).Seconds())
	}
	if series.sizes != nil {
		series.sizes.Observe(float64(w.size))
	}
}

// of finds where requests of a kind are counted. There are no more kinds than the server has endpoints, verbs and answers.
func (m *metrics) of(k requestKind) *requestSeries {
	if known := (*m.series.Load())[k]; known != nil {
		return known
	}
	s := &requestSeries{
		count:   m.requests.WithLabelValues(k.verb, k.dryRun, k.group, k.version, k.resource, k.subresource, k.scope, componentName, strconv.Itoa(k.code)),
		seconds: m.seconds.WithLabelValues(k.verb, k.dryRun, k.group, k.version, k.resource, k.subresource, k.scope, componentName),
	}
	if k.dryRun == "" {
		s.sliSeconds = m.sliSeconds.WithLabelValues(k.verb, k.group, k.version, k.resource, k.subresource, k.scope, componentName)
	}
	if k.verb == http.MethodGet || k.verb == "LIST" {
		s.sizes = m.sizes.WithLabelValues(k.verb, k.group, k.version, k.resource, k.subresource, k.scope, componentName)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	all := maps.Clone(*m.series.Load())
	all[k] = s
	m.series.Store(&all)
	return s
}

// long counts a request as one that lasts, until the returned function is called.
func (m *metrics) long(verb string, rt request.Route) (done func()) {
	open := m.watches.WithLabelValues(verb, rt.Group, rt.Version, rt.Plural, rt.Subresource, metricScope(rt), componentName)
	open.Inc()
	return open.Dec
}

// served is a route without what is not served: paths that lead nowhere are anybody's invention and must not become labels, whatever
// they were answered.
func (s *Server) served(rt request.Route) request.Route {
	end := s.endpoint(rt.Group, rt.Version, rt.Plural)
	switch {
	case end == nil:
		rt.Group, rt.Version, rt.Plural, rt.Subresource = "", "", "", ""
	case !end.subresources[rt.Subresource]:
		rt.Subresource = ""
	}
	return rt
}

func metricVerb(r *http.Request, rt request.Route) string {
	if rt.Resource && connects(rt.Subresource) {
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
	return metav1.DryRunAll // which is all that is valid
}

func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	all := prometheus.Gatherers{s.metrics.registry, s.momentMetrics()}
	s.metrics.mu.Lock()
	all = append(all, s.metrics.also...)
	s.metrics.mu.Unlock()
	promhttp.HandlerFor(all, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

// AddMetrics has /metrics show those of a component in this process too.
func (s *Server) AddMetrics(g prometheus.Gatherer) {
	s.metrics.mu.Lock()
	defer s.metrics.mu.Unlock()
	s.metrics.also = append(s.metrics.also, g)
}

// momentMetrics count what the caches hold and what is under way, when somebody asks.
func (s *Server) momentMetrics() prometheus.Gatherer {
	registry := prometheus.NewRegistry()
	objects := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "apiserver_resource_objects", Help: "Number of stored objects at the time of last check split by kind."}, []string{"group", "resource"})
	size := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "apiserver_resource_size_estimate_bytes", Help: "Estimated size of stored objects in bytes."}, []string{"group", "resource"})
	for gvr, e := range s.endpoints {
		if e.Registry == nil || !e.plain() {
			continue
		}
		var stats cache.Stats = e.Registry.Cache.Stats()
		objects.WithLabelValues(gvr.Group, gvr.Resource).Set(float64(stats.Objects))
		size.WithLabelValues(gvr.Group, gvr.Resource).Set(float64(stats.Bytes))
	}
	places := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "apiserver_current_inflight_requests", Help: "Number of currently used inflight request limit of this apiserver per request kind."}, []string{"request_kind"})
	waiting := prometheus.NewGauge(prometheus.GaugeOpts{Name: "apiserver_current_inqueue_requests", Help: "Number of queued requests in this apiserver."})
	flow := s.flow.Stats()
	places.WithLabelValues("readOnly").Set(float64(flow.ReadOnly))
	places.WithLabelValues("mutating").Set(float64(flow.Mutating))
	waiting.Set(float64(flow.Waiting))
	registry.MustRegister(objects, size, places, waiting)
	return registry
}
