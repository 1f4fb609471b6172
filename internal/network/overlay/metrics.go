package overlay

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics holds the metrics of the overlay.
type metrics struct {
	registry *prometheus.Registry
	syncs    *prometheus.CounterVec
	took     prometheus.Histogram
	changes  *prometheus.CounterVec
	peers    prometheus.Gauge
	problems prometheus.Gauge
	mtu      prometheus.Gauge
	tunnel   tunnelCounts
}

// tunnelCounts counts the packets of the udp backend.
type tunnelCounts struct{ sent, received, failed, unknownNode prometheus.Counter }

func newMetrics() *metrics {
	const prefix = "skiff_overlay_"
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + name, Help: help})
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
	}
	packets := counter("udp_packets_total", "Packets of the backend udp, by what became of them", "result")
	m := &metrics{
		registry: prometheus.NewRegistry(),
		syncs:    counter("syncs_total", "Passes that brought the kernel to what Nodes say", "result"),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefix + "sync_duration_seconds", Help: "Duration of such a pass",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 8)}),
		changes:  counter("changes_total", "Routes, neighbours and forwarding entries that were changed", "kind", "action"),
		peers:    gauge("peers", "Other nodes whose pods can be reached"),
		problems: gauge("problems", "Things that keep pods of a node from being reached"),
		mtu:      gauge("mtu_bytes", "The largest packet that pods may send"),
		tunnel: tunnelCounts{sent: packets.WithLabelValues("sent"), received: packets.WithLabelValues("received"),
			failed: packets.WithLabelValues("failed"), unknownNode: packets.WithLabelValues("unknown_node")},
	}
	m.registry.MustRegister(m.syncs, m.took, m.changes, m.peers, m.problems, m.mtu, packets)
	return m
}

func (m *metrics) synced(start time.Time, err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.syncs.WithLabelValues(result).Inc()
	m.took.Observe(time.Since(start).Seconds())
}

func (m *metrics) changed(kind, action string) { m.changes.WithLabelValues(kind, action).Inc() }

// Metrics returns the metrics of the overlay.
func (o *Overlay) Metrics() prometheus.Gatherer { return o.metrics.registry }
