package proxy

import (
	"github.com/prometheus/client_golang/prometheus"

	"skiff/internal/network/proxy/model"
)

// metrics holds the proxy's metrics, under the names of kube-proxy's.
type metrics struct {
	registry                          *prometheus.Registry
	duration, full, partial, program  prometheus.Histogram
	last, queued                      prometheus.Gauge
	endpointChanges, serviceChanges   prometheus.Counter
	endpointsPending, servicesPending prometheus.Gauge
	failures, flows                   prometheus.Counter
	noLocal                           *prometheus.GaugeVec
}

func newMetrics() *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Subsystem: "kubeproxy", Name: name, Help: help, Buckets: buckets})
		m.registry.MustRegister(h)
		return h
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Subsystem: "kubeproxy", Name: name, Help: help})
		m.registry.MustRegister(c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Subsystem: "kubeproxy", Name: name, Help: help})
		m.registry.MustRegister(g)
		return g
	}
	short := prometheus.ExponentialBuckets(0.001, 2, 15)
	m.duration = histogram("sync_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds", short)
	m.full = histogram("sync_full_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds for full resyncs", short)
	m.partial = histogram("sync_partial_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds for partial resyncs", short)
	m.program = histogram("network_programming_duration_seconds", "In Cluster Network Programming Latency in seconds",
		append([]float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5}, append(prometheus.LinearBuckets(1, 1, 59), prometheus.LinearBuckets(60, 5, 12)...)...))
	m.last = gauge("sync_proxy_rules_last_timestamp_seconds", "The last time proxy rules were successfully synced")
	m.queued = gauge("sync_proxy_rules_last_queued_timestamp_seconds", "The last time a sync of proxy rules was queued")
	m.endpointChanges = counter("sync_proxy_rules_endpoint_changes_total", "Cumulative proxy rules Endpoint changes")
	m.serviceChanges = counter("sync_proxy_rules_service_changes_total", "Cumulative proxy rules Service changes")
	m.endpointsPending = gauge("sync_proxy_rules_endpoint_changes_pending", "Pending proxy rules Endpoint changes")
	m.servicesPending = gauge("sync_proxy_rules_service_changes_pending", "Pending proxy rules Service changes")
	m.failures = counter("sync_proxy_rules_sync_failures_total", "Cumulative proxy rules sync failures")
	m.flows = counter("conntrack_reconciler_deleted_entries_total", "Cumulative conntrack flows deleted by conntrack reconciler")
	m.noLocal = prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: "kubeproxy", Name: "sync_proxy_rules_no_local_endpoints_total",
		Help: "Number of services with a Local traffic policy and no endpoints"}, []string{"traffic_policy"})
	m.registry.MustRegister(m.noLocal)
	return m
}

// countNoLocal counts the Ports with a Local traffic policy and no endpoint on this node.
func (p *Proxy) countNoLocal(state *model.State, changes model.Changes) {
	add := func(port *model.Port, by int) {
		if port == nil {
			return
		}
		if verdict, _ := port.Internal(); verdict == model.Drop {
			p.noLocal[0] += by
		}
		if verdict, _ := port.External(); verdict == model.Drop && port.IsExternal() {
			p.noLocal[1] += by
		}
	}
	if changes.All {
		p.noLocal = [2]int{}
		for _, port := range state.Ports {
			add(port, 1)
		}
	} else {
		for _, c := range changes.Ports {
			add(c.Old, -1)
			add(c.New, 1)
		}
	}
	p.metrics.noLocal.WithLabelValues("internal").Set(float64(p.noLocal[0]))
	p.metrics.noLocal.WithLabelValues("external").Set(float64(p.noLocal[1]))
}
