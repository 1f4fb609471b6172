package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// Metrics holds the metrics of loops' work queues, under upstream's names, so that existing dashboards and alerts work. A nil Metrics counts nothing.
type Metrics struct {
	*prometheus.Registry
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	latency, work              *prometheus.HistogramVec
}

// NewMetrics returns metrics with a registry of their own.
func NewMetrics() *Metrics {
	queue := []string{"name"}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "workqueue_" + name, Help: help}, queue)
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "workqueue_" + name, Help: help}, queue)
	}
	seconds := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "workqueue_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(10e-9, 10, 10)}, queue)
	}
	m := &Metrics{
		Registry:   prometheus.NewRegistry(),
		depth:      gauge("depth", "Current depth of workqueue"),
		adds:       counter("adds_total", "Total number of adds handled by workqueue"),
		latency:    seconds("queue_duration_seconds", "How long in seconds an item stays in workqueue before being requested."),
		work:       seconds("work_duration_seconds", "How long in seconds processing an item from workqueue takes."),
		unfinished: gauge("unfinished_work_seconds", "How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases."),
		longest:    gauge("longest_running_processor_seconds", "How many seconds has the longest running processor for workqueue been running."),
		retries:    counter("retries_total", "Total number of retries handled by workqueue"),
	}
	m.MustRegister(m.depth, m.adds, m.latency, m.work, m.unfinished, m.longest, m.retries)
	return m
}

// NewQueue returns a work queue that counts in m. Failed items are requeued after firstRetry, then after twice as long each time, up to lastRetry.
func NewQueue[T comparable](m *Metrics, name string) workqueue.TypedRateLimitingInterface[T] {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[T](firstRetry, lastRetry)
	if m == nil {
		return workqueue.NewTypedRateLimitingQueue(limiter)
	}
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[T]{Name: name, MetricsProvider: provider{m}, Clock: slowTickClock{}})
}

// slowTickClock is the real clock, except that its tickers tick every slowTick: work queues tick twice a second each to update their metrics,
// which costs an idle process more than the metrics are worth.
type slowTickClock struct{ clock.RealClock }

const slowTick = 15 * time.Second

// NewTicker returns a ticker that ticks no more often than every slowTick if d is less than a second.
func (c slowTickClock) NewTicker(d time.Duration) clock.Ticker {
	if d < time.Second {
		d = slowTick
	}
	return c.RealClock.NewTicker(d)
}

// provider gives work queues their metrics.
type provider struct{ *Metrics }

// NewDepthMetric implements workqueue.MetricsProvider.
func (p provider) NewDepthMetric(name string) workqueue.GaugeMetric {
	return p.depth.WithLabelValues(name)
}

// NewAddsMetric implements workqueue.MetricsProvider.
func (p provider) NewAddsMetric(name string) workqueue.CounterMetric {
	return p.adds.WithLabelValues(name)
}

// NewLatencyMetric implements workqueue.MetricsProvider.
func (p provider) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return p.latency.WithLabelValues(name)
}

// NewWorkDurationMetric implements workqueue.MetricsProvider.
func (p provider) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return p.work.WithLabelValues(name)
}

// NewUnfinishedWorkSecondsMetric implements workqueue.MetricsProvider.
func (p provider) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return p.unfinished.WithLabelValues(name)
}

// NewLongestRunningProcessorSecondsMetric implements workqueue.MetricsProvider.
func (p provider) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return p.longest.WithLabelValues(name)
}

// NewRetriesMetric implements workqueue.MetricsProvider.
func (p provider) NewRetriesMetric(name string) workqueue.CounterMetric {
	return p.retries.WithLabelValues(name)
}
