package mutating

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics have upstream's names and labels.
type metrics struct {
	checks  *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	labels := []string{"policy", "policy_binding", "error_type"}
	m := &metrics{
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "apiserver_mutating_admission_policy_check_total",
			Help: "Mutation admission policy check total, labeled by policy and further identified by binding."}, labels),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "apiserver_mutating_admission_policy_check_duration_seconds",
			Help:    "Mutation admission latency for individual mutation expressions in seconds, labeled by policy and binding.",
			Buckets: []float64{0.0000005, 0.001, 0.01, 0.1, 1.0}}, labels),
	}
	if r != nil {
		r.MustRegister(m.checks, m.seconds)
	}
	return m
}

func (m *metrics) observe(policy, binding string, err error, elapsed time.Duration) {
	m.checks.WithLabelValues(policy, binding, errorType(err)).Inc()
	m.seconds.WithLabelValues(policy, binding, errorType(err)).Observe(elapsed.Seconds())
}

// errorType returns the kind of an error, as upstream tells it from the text.
func errorType(err error) string {
	switch {
	case err == nil:
		return "no_error"
	case strings.HasPrefix(err.Error(), "compilation"):
		return "compile_error"
	case strings.HasPrefix(err.Error(), "validation failed due to running out of cost budget"):
		return "out_of_budget"
	}
	return "invalid_error"
}
