package aggregation

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics has upstream's metrics of APIServices.
type metrics struct {
	unavailable *prometheus.CounterVec
	gauge       *prometheus.Desc

	mu        sync.Mutex
	available map[string]bool // by the name of the APIService
}

// newMetrics registers the metrics. A nil registerer registers none.
func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{available: map[string]bool{},
		unavailable: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "aggregator_unavailable_apiservice_total",
			Help: "Counter of APIServices which are marked as unavailable broken down by APIService name and reason."}, []string{"name", "reason"}),
		gauge: prometheus.NewDesc("aggregator_unavailable_apiservice", "Gauge of APIServices which are marked as unavailable broken down by APIService name.", []string{"name"}, nil)}
	if r != nil {
		if err := errors.Join(r.Register(m.unavailable), r.Register(m)); err != nil {
			panic(err) // each server has a registry of its own
		}
	}
	return m
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- m.gauge }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(values chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, available := range m.available {
		value := 1.0
		if available {
			value = 0
		}
		values <- prometheus.MustNewConstMetric(m.gauge, prometheus.GaugeValue, value, name)
	}
}

func (m *metrics) set(name string, available bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.available[name] = available
}

func (m *metrics) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.available, name)
}

// lost counts that an APIService has become unavailable.
func (m *metrics) lost(name, reason string) { m.unavailable.WithLabelValues(name, reason).Inc() }
