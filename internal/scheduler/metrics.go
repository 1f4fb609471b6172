package scheduler

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"skiff/internal/scheduling"
)

// metrics holds upstream's metrics, with the same names, labels and meaning, so that existing dashboards and alerts work.
type metrics struct {
	registry        *prometheus.Registry
	attempts        *prometheus.CounterVec   // by result and profile
	attemptSeconds  *prometheus.HistogramVec // by result and profile
	algorithm       prometheus.Histogram
	points          *prometheus.HistogramVec // by extension point, status and profile
	podAttempts     prometheus.Histogram
	podSeconds      *prometheus.HistogramVec // by the number of attempts
	preemptions     prometheus.Counter
	victims         prometheus.Histogram
	incoming        *prometheus.CounterVec // by queue and event
	incomingByEvent map[arrival]prometheus.Counter
}

// Results of an attempt.
const (
	scheduled       = "scheduled"
	notSchedulable  = "unschedulable"
	schedulingError = "error"
)

func newMetrics() *metrics {
	seconds := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "scheduler_" + name, Help: help, Buckets: buckets}, labels)
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "scheduler_" + name, Help: help, Buckets: buckets})
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "scheduler_" + name, Help: help}, labels)
	}
	m := &metrics{
		registry:        prometheus.NewRegistry(),
		incomingByEvent: map[arrival]prometheus.Counter{},
		attempts: counter("schedule_attempts_total", "Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be scheduled, while 'error' means an internal scheduler problem.",
			"result", "profile"),
		attemptSeconds: seconds("scheduling_attempt_duration_seconds", "Scheduling attempt latency in seconds (scheduling algorithm + binding)",
			prometheus.ExponentialBuckets(0.001, 2, 15), "result", "profile"),
		algorithm: histogram("scheduling_algorithm_duration_seconds", "Scheduling algorithm latency in seconds", prometheus.ExponentialBuckets(0.001, 2, 15)),
		points: seconds("framework_extension_point_duration_seconds", "Latency for running all plugins of a specific extension point.",
			prometheus.ExponentialBuckets(0.0001, 2, 12), "extension_point", "status", "profile"),
		podAttempts: histogram("pod_scheduling_attempts", "Number of attempts to successfully schedule a pod.", prometheus.ExponentialBuckets(1, 2, 5)),
		podSeconds: seconds("pod_scheduling_sli_duration_seconds", "E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and might involve multiple scheduling attempts.",
			prometheus.ExponentialBuckets(0.01, 2, 20), "attempts"),
		preemptions: prometheus.NewCounter(prometheus.CounterOpts{Name: "scheduler_preemption_attempts_total", Help: "Total preemption attempts in the cluster till now"}),
		victims: histogram("preemption_victims", "Number of selected preemption victims for preemption initiated by a single pod",
			prometheus.ExponentialBuckets(1, 2, 7)),
		incoming: counter("queue_incoming_pods_total", "Number of pods added to scheduling queues by event and queue type.", "queue", "event"),
	}
	m.registry.MustRegister(m.attempts, m.attemptSeconds, m.algorithm, m.points, m.podAttempts, m.podSeconds, m.preemptions, m.victims, m.incoming)
	return m
}

// attempt counts a finished attempt to schedule a pod.
func (m *metrics) attempt(result, profile string, began time.Time) {
	m.attempts.WithLabelValues(result, profile).Inc()
	m.attemptSeconds.WithLabelValues(result, profile).Observe(time.Since(began).Seconds())
}

// point records how long the plugins of an extension point took.
func (m *metrics) point(name, profile string, status scheduling.Code, took time.Duration) {
	m.points.WithLabelValues(name, status.String(), profile).Observe(took.Seconds())
}

// podScheduled counts a pod that was scheduled.
func (m *metrics) podScheduled(p *queuedPod) {
	m.attempt(scheduled, p.Spec.SchedulerName, p.lastAttempt)
	m.podAttempts.Observe(float64(p.attempts))
	const most = 15
	label := strconv.Itoa(p.attempts)
	if p.attempts > most {
		label = strconv.Itoa(most+1) + "+"
	}
	m.podSeconds.WithLabelValues(label).Observe(time.Since(p.firstAttempt).Seconds())
}

// arrival is why a pod was added to a queue.
type arrival struct{ queue, event string }

// Why pods are added to a queue, besides cluster events.
const (
	podAdded           = "UnscheduledPodAdd"
	attemptFailed      = "ScheduleAttemptFailure"
	backoffComplete    = "BackoffComplete"
	poppedFromBackoff  = "PopFromBackoffQ"
	forced             = "ForceActivate"
	unschedulableLong  = "UnschedulableTimeout"
	activeQueue        = "active"
	backoffQueue       = "backoff"
	unschedulableQueue = "unschedulable"
)

// podQueued counts a pod that was added to a queue. It is called under the queue's lock.
func (m *metrics) podQueued(queue, event string) {
	if m == nil {
		return
	}
	a := arrival{queue, event}
	c := m.incomingByEvent[a]
	if c == nil {
		c = m.incoming.WithLabelValues(queue, event)
		m.incomingByEvent[a] = c
	}
	c.Inc()
}

// eventLabel returns an event as metrics label it.
func eventLabel(e scheduling.Event) string { return e.Kind.String() + e.Action.String() }

var pendingDesc = prometheus.NewDesc("scheduler_pending_pods", "Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means number of pods in backoffQ; "+
	"'unschedulable' means number of pods in unschedulableEntities that the scheduler attempted to schedule and failed; 'gated' is the number of unschedulable pods that the scheduler never attempted to "+
	"schedule because they are gated.", []string{"queue"}, nil)

// Describe implements prometheus.Collector.
func (q *queue) Describe(to chan<- *prometheus.Desc) { to <- pendingDesc }

// Collect implements prometheus.Collector: it counts the pending pods.
func (q *queue) Collect(to chan<- prometheus.Metric) {
	q.mu.Lock()
	counts := map[string]int{activeQueue: q.active.Len(), backoffQueue: q.backoff.Len() + q.errorBackoff.Len(), unschedulableQueue: 0, "gated": 0}
	for key, pods := range q.waiting {
		if key.gated {
			counts["gated"] += len(pods)
		} else {
			counts[unschedulableQueue] += len(pods)
		}
	}
	q.mu.Unlock()
	for name, n := range counts {
		to <- prometheus.MustNewConstMetric(pendingDesc, prometheus.GaugeValue, float64(n), name)
	}
}

// Metrics returns the scheduler's metrics.
func (s *Scheduler) Metrics() prometheus.Gatherer { return s.metrics.registry }
