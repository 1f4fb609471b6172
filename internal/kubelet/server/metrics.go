package server

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metricsOf serves what a gatherer has.
func metricsOf(g prometheus.Gatherer) http.HandlerFunc {
	if g == nil {
		g = prometheus.NewRegistry()
	}
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP
}

// serveMetrics serves what one collector has right now.
func serveMetrics(w http.ResponseWriter, rq *http.Request, c prometheus.Collector) {
	r := prometheus.NewRegistry()
	if err := r.Register(c); err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	metricsOf(r)(w, rq)
}

// collector makes metrics anew each time, so that none are left of what is gone.
type collector func(chan<- prometheus.Metric)

// Describe implements prometheus.Collector. It sends nothing: which metrics there are depends on what runs.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) { c(to) }

// metrics are of the server itself.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
}

func newMetrics() *metrics {
	labels := []string{"method", "path", "server_type", "long_running"}
	return &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: "kubelet", Name: "http_requests_total",
			Help: "[ALPHA] Number of the http requests received since the server started"}, labels),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Subsystem: "kubelet", Name: "http_requests_duration_seconds",
			Help: "[ALPHA] Duration in seconds to serve http requests"}, labels),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: "kubelet", Name: "http_inflight_requests",
			Help: "[ALPHA] Number of the inflight http requests"}, labels),
	}
}

// Describe implements prometheus.Collector.
func (s *Server) Describe(c chan<- *prometheus.Desc) {
	s.metrics.requests.Describe(c)
	s.metrics.duration.Describe(c)
	s.metrics.inFlight.Describe(c)
}

// Collect implements prometheus.Collector.
func (s *Server) Collect(c chan<- prometheus.Metric) {
	s.metrics.requests.Collect(c)
	s.metrics.duration.Collect(c)
	s.metrics.inFlight.Collect(c)
}

// roots are what paths begin with; others count together, as clients must not make up series.
var roots = []string{"attach", "configz", "containerLogs", "debug", "exec", "healthz", "logs", "metrics", "metrics/cadvisor", "metrics/probes", "metrics/resource", "metrics/slis",
	"pods", "portForward", "run", "runningpods", "stats"}

var methods = []string{"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"}

// count counts a request until the function that it returns is called.
func (m *metrics) count(rq *http.Request) (done func()) {
	parts := strings.SplitN(strings.TrimPrefix(rq.URL.Path, "/"), "/", 3)
	root := parts[0]
	if root == "metrics" && len(parts) > 1 {
		root += "/" + parts[1]
	}
	method := rq.Method
	if !slices.Contains(roots, root) {
		root = "other"
	}
	if !slices.Contains(methods, method) {
		method = "other"
	}
	long := root == "exec" || root == "attach" || root == "portForward" || root == "debug"
	labels := []string{method, root, "readwrite", strconv.FormatBool(long)}
	m.requests.WithLabelValues(labels...).Inc()
	m.inFlight.WithLabelValues(labels...).Inc()
	began := time.Now()
	return func() {
		m.inFlight.WithLabelValues(labels...).Dec()
		m.duration.WithLabelValues(labels...).Observe(time.Since(began).Seconds())
	}
}
