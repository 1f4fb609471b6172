package slis

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics are the results of the health checks of a component.
type Metrics struct {
	registry *prometheus.Registry
	result   *prometheus.GaugeVec
	count    *prometheus.CounterVec
}

// New returns metrics without results.
func New() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		result: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubernetes_healthcheck",
			Help: "[STABLE] This metric records the result of a single healthcheck."}, []string{"name", "type"}),
		count: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubernetes_healthchecks_total",
			Help: "[STABLE] This metric records the results of all healthcheck."}, []string{"name", "type", "status"}),
	}
	m.registry.MustRegister(m.result, m.count, startTime{collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})})
	return m
}

// Observe records the result of a check. kind is the endpoint of the check: healthz, livez or readyz.
func (m *Metrics) Observe(name, kind string, err error) {
	result, status := 1.0, "success"
	if err != nil {
		result, status = 0, "error"
	}
	m.result.WithLabelValues(name, kind).Set(result)
	m.count.WithLabelValues(name, kind, status).Inc()
}

// ServeHTTP serves the metrics.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

// startTime collects only process_start_time_seconds of the process metrics.
type startTime struct{ process prometheus.Collector }

// Describe implements prometheus.Collector.
func (s startTime) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(s, out) }

// Collect implements prometheus.Collector.
func (s startTime) Collect(out chan<- prometheus.Metric) {
	all := make(chan prometheus.Metric)
	go func() {
		defer close(all)
		s.process.Collect(all)
	}()
	for m := range all {
		if strings.Contains(m.Desc().String(), `"process_start_time_seconds"`) {
			out <- m
		}
	}
}
