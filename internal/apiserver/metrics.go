package apiserver

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"skiff/internal/cache"
)

// metrics carry upstream's names, so that existing dashboards and alerts work.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	watches  *prometheus.GaugeVec

	mu   sync.Mutex
	also []prometheus.Gatherer // of components in this process
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "apiserver_request_total",
			Help: "Counter of apiserver requests broken out for each verb, group, version, resource, scope, component, and HTTP response code."},
			[]string{"verb", "group", "version", "resource", "subresource", "scope", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "apiserver_request_duration_seconds",
			Help:    "Response latency distribution in seconds for each verb, group, version, resource, subresource and scope.",
			Buckets: []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.5, 3, 5, 10, 30, 60}},
			[]string{"verb", "group", "version", "resource", "subresource", "scope"}),
		watches: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "apiserver_longrunning_requests",
			Help: "Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope."},
			[]string{"verb", "group", "version", "resource"}),
	}
	m.registry.MustRegister(m.requests, m.seconds, m.watches, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) observe(r *http.Request, rt route, w *responseWriter, began time.Time) {
	verb := metricVerb(r, rt)
	scope := "cluster"
	switch {
	case !rt.resource:
		rt.group, rt.version, rt.plural, rt.subresource, scope = "", "", "", "", ""
	case rt.name != "":
		scope = "resource"
	case rt.namespace != "":
		scope = "namespace"
	}
	m.requests.WithLabelValues(verb, rt.group, rt.version, rt.plural, rt.subresource, scope, strconv.Itoa(w.code())).Inc()
	if verb != "WATCH" {
		m.seconds.WithLabelValues(verb, rt.group, rt.version, rt.plural, rt.subresource, scope).Observe(time.Since(began).Seconds())
	}
}

// served is a route without what is not served: paths that lead nowhere are anybody's invention and must not become labels, whatever
// they were answered.
func (s *Server) served(rt route) route {
	end := s.endpoint(rt.group, rt.version, rt.plural)
	switch {
	case end == nil:
		rt.group, rt.version, rt.plural, rt.subresource = "", "", "", ""
	case !end.subresources[rt.subresource]:
		rt.subresource = ""
	}
	return rt
}

func metricVerb(r *http.Request, rt route) string {
	switch rt.verb {
	case "list":
		return "LIST"
	case "watch":
		return "WATCH"
	case "get", "create", "update", "patch", "delete", "deletecollection":
		return map[string]string{"get": "GET", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETECOLLECTION"}[rt.verb]
	}
	switch r.Method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead, http.MethodOptions:
		return r.Method
	}
	return "other"
}

func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	all := prometheus.Gatherers{s.metrics.registry, s.cacheMetrics()}
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

// cacheMetrics counts what the caches hold, when somebody asks.
func (s *Server) cacheMetrics() prometheus.Gatherer {
	registry := prometheus.NewRegistry()
	objects := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "apiserver_resource_objects", Help: "Number of stored objects at the time of last check split by kind."}, []string{"group", "resource"})
	size := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "apiserver_resource_size_estimate_bytes", Help: "Estimated size of stored objects in bytes."}, []string{"group", "resource"})
	for gvr, e := range s.endpoints {
		if e.registry == nil || !e.plain() {
			continue
		}
		var stats cache.Stats = e.registry.Cache.Stats()
		objects.WithLabelValues(gvr.Group, gvr.Resource).Set(float64(stats.Objects))
		size.WithLabelValues(gvr.Group, gvr.Resource).Set(float64(stats.Bytes))
	}
	registry.MustRegister(objects, size)
	return registry
}
