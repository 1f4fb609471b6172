package validating

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics have upstream's names and labels.
type metrics struct {
	checks  *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	labels := []string{"policy", "policy_binding", "error_type", "enforcement_action"}
	m := &metrics{
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "apiserver_validating_admission_policy_check_total",
			Help: "Validation admission policy check total, labeled by policy and further identified by binding and enforcement action taken."}, labels),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "apiserver_validating_admission_policy_check_duration_seconds",
			Help:    "Validation admission latency for individual validation expressions in seconds, labeled by policy and further including binding and enforcement action taken.",
			Buckets: []float64{0.0000005, 0.001, 0.01, 0.1, 1.0}}, labels),
	}
	if r != nil {
		r.MustRegister(m.checks, m.seconds)
	}
	return m
}

func (m *metrics) observe(policy, binding string, d *decision, action string) {
	kind := d.errorType()
	m.checks.WithLabelValues(policy, binding, kind, action).Inc()
	m.seconds.WithLabelValues(policy, binding, kind, action).Observe(d.elapsed.Seconds())
}

// errorType returns the kind of error of a decision, as upstream tells it from the message.
func (d *decision) errorType() string {
	switch {
	case strings.HasPrefix(d.message, "compilation"):
		return "compile_error"
	case strings.HasPrefix(d.message, "validation failed due to running out of cost budget"):
		return "out_of_budget"
	case !d.failed && !d.denied:
		return "no_error"
	}
	return "invalid_error"
}
