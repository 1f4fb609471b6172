package conversion

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// What metrics call the ways in which a call fails.
const (
	callFailure      = "conversion_webhook_call_failure"
	malformedFailure = "conversion_webhook_malformed_response_failure"
	partialFailure   = "conversion_webhook_partial_response_failure"
	invalidFailure   = "conversion_webhook_invalid_converted_object_failure"
)

// metrics has upstream's metrics of conversion webhooks.
type metrics struct {
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	byVersion *prometheus.HistogramVec
}

// newMetrics registers the metrics.
func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "apiserver_conversion_webhook_request_total",
			Help: "Counter for conversion webhook requests with success/failure and failure error type"}, []string{"result", "failure_type"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "apiserver_conversion_webhook_duration_seconds", Help: "Conversion webhook request latency",
			Buckets: []float64{0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 45, 60}}, []string{"result", "failure_type"}),
		byVersion: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "apiserver_crd_conversion_webhook_duration_seconds",
			Help: "CRD webhook conversion duration in seconds", Buckets: prometheus.ExponentialBuckets(0.001, 2, 15)},
			[]string{"crd_name", "from_version", "to_version", "succeeded"}),
	}
	r.MustRegister(m.requests, m.durations, m.byVersion)
	return m
}

// called counts a call. failure is empty if it succeeded.
func (m *metrics) called(definition, from, to string, took time.Duration, failure string, err error) {
	result := "success"
	if err != nil {
		result = "failure"
	}
	m.requests.WithLabelValues(result, failure).Inc()
	m.durations.WithLabelValues(result, failure).Observe(took.Seconds())
	m.byVersion.WithLabelValues(definition, from, to, strconv.FormatBool(err == nil)).Observe(took.Seconds())
}
