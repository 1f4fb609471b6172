package probe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// metrics are guarded by the manager's lock, so that none are recorded for a pod that was forgotten.
type metrics struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	names    map[types.UID]types.NamespacedName
}

func newMetrics() *metrics {
	return &metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: "prober", Name: "probe_total",
			Help: "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result."},
			[]string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Subsystem: "prober", Name: "probe_duration_seconds",
			Help: "[ALPHA] Duration in seconds for a probe response."}, []string{"probe_type", "container", "pod", "namespace"}),
		names: map[types.UID]types.NamespacedName{},
	}
}

// Describe implements prometheus.Collector: a Manager is registered where /metrics/probes is served from.
func (m *Manager) Describe(c chan<- *prometheus.Desc) {
	m.metrics.total.Describe(c)
	m.metrics.duration.Describe(c)
}

// Collect implements prometheus.Collector.
func (m *Manager) Collect(c chan<- prometheus.Metric) {
	m.metrics.total.Collect(c)
	m.metrics.duration.Collect(c)
}

func (m *metrics) observe(pod *corev1.Pod, container string, kind Kind, good bool, took time.Duration) {
	m.names[pod.UID] = types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	result := "failed"
	if good {
		result = "successful"
		m.duration.WithLabelValues(string(kind), container, pod.Name, pod.Namespace).Observe(took.Seconds())
	}
	m.total.WithLabelValues(string(kind), result, container, pod.Name, pod.Namespace, string(pod.UID)).Inc()
}

func (m *metrics) forget(pod types.UID) {
	name, known := m.names[pod]
	if !known {
		return
	}
	delete(m.names, pod)
	m.total.DeletePartialMatch(prometheus.Labels{"pod_uid": string(pod)})
	m.duration.DeletePartialMatch(prometheus.Labels{"namespace": name.Namespace, "pod": name.Name})
}
