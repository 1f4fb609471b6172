package webhook

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"skiff/internal/apiserver/admission"
)

// metrics has upstream's metrics of webhooks.
type metrics struct {
	duration, conditionDuration                                          *prometheus.HistogramVec
	requests, rejections, failOpen, conditionErrors, conditionExclusions *prometheus.CounterVec
}

// newMetrics registers the metrics, which both plugins share. A nil registerer registers none.
func newMetrics(r prometheus.Registerer) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return register(r, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "apiserver_admission_" + name, Help: help}, labels))
	}
	return &metrics{
		duration: register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "apiserver_admission_webhook_admission_duration_seconds",
			Help:    "Admission webhook latency histogram in seconds, identified by name and broken out for each operation and API resource and type (validate or admit).",
			Buckets: []float64{0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10, 25}}, []string{"name", "type", "operation", "rejected"})),
		conditionDuration: register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "apiserver_admission_match_condition_evaluation_seconds",
			Help: "Admission match condition evaluation time in seconds, identified by name and broken out for each kind containing matchConditions (webhook or policy), " +
				"operation and type (validate or admit).",
			Buckets: []float64{0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25}}, []string{"name", "kind", "type", "operation"})),
		requests: counter("webhook_request_total", "Admission webhook request total, identified by name and broken out for each admission type (validating or admit) and operation. "+
			"Additional labels specify whether the request was rejected or not and an HTTP status code. Codes greater than 600 are truncated to 600, to keep the metrics cardinality bounded.",
			"name", "type", "operation", "code", "rejected"),
		rejections: counter("webhook_rejection_count", "Admission webhook rejection count, identified by name and broken out for each admission type (validating or admit) and operation. "+
			"Additional labels specify an error type (calling_webhook_error or apiserver_internal_error if an error occurred; no_error otherwise) and optionally a non-zero rejection code "+
			"if the webhook rejects the request with an HTTP status code (honored by the apiserver when the code is greater or equal to 400). "+
			"Codes greater than 600 are truncated to 600, to keep the metrics cardinality bounded.", "name", "type", "operation", "error_type", "rejection_code"),
		failOpen: counter("webhook_fail_open_count", "Admission webhook fail open count, identified by name and broken out for each admission type (validating or admit).", "name", "type"),
		conditionErrors: counter("match_condition_evaluation_errors_total", "Admission match condition evaluation errors count, identified by name of resource containing the match condition "+
			"and broken out for each kind containing matchConditions (webhook or policy), operation and admission type (validate or admit).", "name", "kind", "type", "operation"),
		conditionExclusions: counter("match_condition_exclusions_total", "Admission match condition evaluation exclusions count, identified by name of resource containing the match condition "+
			"and broken out for each kind containing matchConditions (webhook or policy), operation and admission type (validate or admit).", "name", "kind", "type", "operation"),
	}
}

// register registers a collector, and returns the one that is registered already if there is one.
func register[C prometheus.Collector](r prometheus.Registerer, c C) C {
	if r == nil {
		return c
	}
	var already prometheus.AlreadyRegisteredError
	if errors.As(r.Register(c), &already) {
		if registered, ok := already.ExistingCollector.(C); ok {
			return registered
		}
	}
	return c
}

const maxCode = 600

func (m *metrics) called(name, step string, operation admission.Operation, took time.Duration, rejected bool, code int32) {
	text := strconv.FormatBool(rejected)
	m.requests.WithLabelValues(name, step, string(operation), strconv.Itoa(int(min(code, maxCode))), text).Inc()
	m.duration.WithLabelValues(name, step, string(operation), text).Observe(took.Seconds())
}

func (m *metrics) rejected(name, step string, operation admission.Operation, errorType string, code int32) {
	m.rejections.WithLabelValues(name, step, string(operation), errorType, strconv.Itoa(int(min(code, maxCode)))).Inc()
}

// conditions counts an evaluation of match conditions. As upstream, the time is that of evaluations that did not select the request.
func (m *metrics) conditions(name, step string, operation admission.Operation, took time.Duration, matched bool, err error) {
	if matched {
		return
	}
	m.conditionDuration.WithLabelValues(name, "webhook", step, string(operation)).Observe(took.Seconds())
	if err == nil {
		m.conditionExclusions.WithLabelValues(name, "webhook", step, string(operation)).Inc()
		return
	}
	failures := 1
	if all, ok := err.(utilerrors.Aggregate); ok {
		failures = len(all.Errors())
	}
	m.conditionErrors.WithLabelValues(name, "webhook", step, string(operation)).Add(float64(failures))
}
