package webhook

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are upstream's metrics of webhook authorizers.
type Metrics struct {
	evaluations, failOpen, conditionErrors, conditionExclusions *prometheus.CounterVec
	seconds, conditionSeconds                                   *prometheus.HistogramVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "apiserver_authorization_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "apiserver_authorization_" + name, Help: help, Buckets: buckets}, labels)
	}
	m := &Metrics{
		evaluations: counter("webhook_evaluations_total", "Round-trips to authorization webhooks.", "name", "result"),
		seconds:     histogram("webhook_duration_seconds", "Request latency in seconds.", prometheus.DefBuckets, "name", "result"),
		failOpen:    counter("webhook_evaluations_fail_open_total", "NoOpinion results due to webhook timeout or error.", "name", "result"),
		conditionErrors: counter("match_condition_evaluation_errors_total",
			"Total number of errors when an authorization webhook encounters a match condition error split by authorizer type and name.", "type", "name"),
		conditionExclusions: counter("match_condition_exclusions_total",
			"Total number of exclusions when an authorization webhook is skipped because match conditions exclude it.", "type", "name"),
		conditionSeconds: histogram("match_condition_evaluation_seconds", "Authorization match condition evaluation time in seconds, split by authorizer type and name.",
			[]float64{0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25}, "type", "name"),
	}
	registry.MustRegister(m.evaluations, m.seconds, m.failOpen, m.conditionErrors, m.conditionExclusions, m.conditionSeconds)
	return m
}

func (m *Metrics) called(name, result string, took time.Duration) {
	m.evaluations.WithLabelValues(name, result).Inc()
	m.seconds.WithLabelValues(name, result).Observe(took.Seconds())
}

func (m *Metrics) failedOpen(name, result string) { m.failOpen.WithLabelValues(name, result).Inc() }

// RecordAuthorizationMatchConditionEvaluation counts how long the conditions of one request took.
func (m *Metrics) RecordAuthorizationMatchConditionEvaluation(_ context.Context, authorizerType, name string, took time.Duration) {
	m.conditionSeconds.WithLabelValues(authorizerType, name).Observe(took.Seconds())
}

// RecordAuthorizationMatchConditionEvaluationFailure counts a request on which a condition could not be evaluated.
func (m *Metrics) RecordAuthorizationMatchConditionEvaluationFailure(_ context.Context, authorizerType, name string) {
	m.conditionErrors.WithLabelValues(authorizerType, name).Inc()
}

// RecordAuthorizationMatchConditionExclusion counts a request that a condition excludes.
func (m *Metrics) RecordAuthorizationMatchConditionExclusion(_ context.Context, authorizerType, name string) {
	m.conditionExclusions.WithLabelValues(authorizerType, name).Inc()
}
