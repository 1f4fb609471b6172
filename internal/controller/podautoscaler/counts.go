package podautoscaler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"skiff/internal/controller"
)

// The values of the labels of counts.
const (
	actionNone, actionUp, actionDown    = "none", "scale_up", "scale_down"
	errorNone, errorInternal, errorSpec = "none", "internal", "spec"
)

// counts are the loop's metrics, under upstream's names. Nil counts nothing.
type counts struct {
	autoscalers   prometheus.Gauge
	desired       *prometheus.GaugeVec
	total         *prometheus.CounterVec
	seconds       *prometheus.HistogramVec
	metricTotal   *prometheus.CounterVec
	metricSeconds *prometheus.HistogramVec
}

func newCounts(m *controller.Metrics) *counts {
	if m == nil {
		return nil
	}
	const subsystem = "horizontal_pod_autoscaler_controller"
	buckets := prometheus.ExponentialBuckets(0.001, 2, 15)
	done, computed := []string{"action", "error"}, []string{"action", "error", "metric_type"}
	c := &counts{
		autoscalers:   prometheus.NewGauge(prometheus.GaugeOpts{Subsystem: subsystem, Name: "num_horizontal_pod_autoscalers", Help: "Current number of controlled HPA objects."}),
		desired:       prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: subsystem, Name: "desired_replicas", Help: "Current desired replica count for HPA objects."}, []string{"namespace", "hpa_name"}),
		total:         prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: "reconciliations_total", Help: "Number of reconciliations of HPA controller."}, done),
		seconds:       prometheus.NewHistogramVec(prometheus.HistogramOpts{Subsystem: subsystem, Name: "reconciliation_duration_seconds", Help: "The time(seconds) that the HPA controller takes to reconcile once.", Buckets: buckets}, done),
		metricTotal:   prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: "metric_computation_total", Help: "Number of metric computations."}, computed),
		metricSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Subsystem: subsystem, Name: "metric_computation_duration_seconds", Help: "The time(seconds) that the HPA controller takes to calculate one metric.", Buckets: buckets}, computed),
	}
	m.MustRegister(c.autoscalers, c.desired, c.total, c.seconds, c.metricTotal, c.metricSeconds)
	return c
}

// known notes how many autoscalers there are.
func (c *counts) known(n int) {
	if c != nil {
		c.autoscalers.Set(float64(n))
	}
}

// forget drops what is counted of an autoscaler that has been deleted.
func (c *counts) forget(key controller.Key) {
	if c != nil {
		c.desired.DeleteLabelValues(key.Namespace, key.Name)
	}
}

// computed counts a metric. took is how long it took to read.
func (c *counts) computed(kind autoscalingv2.MetricSourceType, current, wanted int32, failed bool, took time.Duration) {
	if c == nil {
		return
	}
	action, problem := actionNone, errorNone
	switch {
	case failed:
		problem = errorInternal
	case wanted > current:
		action = actionUp
	case wanted < current:
		action = actionDown
	}
	c.metricTotal.WithLabelValues(action, problem, string(kind)).Inc()
	c.metricSeconds.WithLabelValues(action, problem, string(kind)).Observe(took.Seconds())
}

// evaluated counts an evaluation that began at a time.
func (c *counts) evaluated(h *autoscalingv2.HorizontalPodAutoscaler, action, problem string, began time.Time) {
	if c == nil {
		return
	}
	if problem == errorNone {
		c.desired.WithLabelValues(h.Namespace, h.Name).Set(float64(h.Status.DesiredReplicas))
	}
	c.total.WithLabelValues(action, problem).Inc()
	c.seconds.WithLabelValues(action, problem).Observe(time.Since(began).Seconds())
}
