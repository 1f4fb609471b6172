package kubelet

import (
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"skiff/internal/kubelet/status"
)

// metrics are what the kubelet measures of itself, under Kubernetes' names.
type metrics struct {
	starts      *prometheus.CounterVec
	startErrors *prometheus.CounterVec
	ends        *prometheus.CounterVec
	pulls       prometheus.Histogram
	startSLI    prometheus.Histogram // from the pod's creation until it is observed running, without image pulls and init containers
	startTotal  prometheus.Histogram
	statusSync  prometheus.Histogram
	registry    *prometheus.Registry
	probes      *prometheus.Registry
}

var startBuckets = []float64{0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kubelet_" + name, Help: help, Buckets: buckets})
	}
	m := &metrics{
		starts:      counter("started_containers_total", "Cumulative number of containers started", "container_type"),
		startErrors: counter("started_containers_errors_total", "Cumulative number of errors when starting containers", "container_type", "code"),
		ends:        counter("terminated_containers_total", "Cumulative number of container terminations.", "container_type", "exit_code", "reason"),
		pulls:       histogram("image_pull_duration_seconds", "Duration in seconds to pull an image.", startBuckets),
		startSLI: histogram("pod_start_sli_duration_seconds",
			"Duration in seconds to start a pod, excluding time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch", startBuckets),
		startTotal: histogram("pod_start_total_duration_seconds",
			"Duration in seconds to start a pod since creation, including time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch", startBuckets),
		statusSync: histogram("pod_status_sync_duration_seconds", "Duration in seconds to sync a pod status update. Measures time from detection of a change to pod status until the API is successfully updated for that pod, even if multiple intevening changes to pod status occur.",
			[]float64{0.010, 0.050, 0.100, 0.500, 1, 5, 10, 20, 30, 45, 60}),
		registry: prometheus.NewRegistry(), probes: prometheus.NewRegistry(),
	}
	m.registry.MustRegister(m.starts, m.startErrors, m.ends, m.pulls, m.startSLI, m.startTotal, m.statusSync)
	return m
}

// Metrics returns the kubelet's metrics.
func (k *Kubelet) Metrics() prometheus.Gatherer { return k.metrics.registry }

// ProbeMetrics returns the metrics of probes, which are served at a path of their own.
func (k *Kubelet) ProbeMetrics() prometheus.Gatherer { return k.metrics.probes }

func (m *metrics) pulled(took time.Duration, _ uint64) { m.pulls.Observe(took.Seconds()) }

// count counts the containers that have terminated since a pod's last status.
func (m *metrics) count(before, now *corev1.PodStatus) {
	for _, list := range []struct {
		kind        kind
		before, now []corev1.ContainerStatus
	}{
		{initContainer, before.InitContainerStatuses, now.InitContainerStatuses}, {ordinaryContainer, before.ContainerStatuses, now.ContainerStatuses},
		{ephemeralContainer, before.EphemeralContainerStatuses, now.EphemeralContainerStatuses},
	} {
		for _, c := range list.now {
			counted := slices.ContainsFunc(list.before, func(b corev1.ContainerStatus) bool { return b.Name == c.Name && b.State.Terminated != nil })
			if t := c.State.Terminated; t != nil && !counted {
				m.ends.WithLabelValues(string(list.kind), strconv.Itoa(int(t.ExitCode)), t.Reason).Inc()
			}
		}
	}
}

// statusWritten is called when a status was written to the API. computedAt is when the first change in it was computed; zero if that is not known.
func (k *Kubelet) statusWritten(pod *corev1.Pod, computedAt time.Time) {
	if !computedAt.IsZero() {
		k.metrics.statusSync.Observe(time.Since(computedAt).Seconds())
	}
	k.mu.Lock()
	w := k.workers[pod.UID]
	k.mu.Unlock()
	if w == nil {
		return
	}
	if isReady(&pod.Status) && w.markReady() {
		k.reportReadyStages(w, pod, computedAt)
	}
	if allStarted(pod) && w.markStarted() {
		total := time.Since(pod.CreationTimestamp.Time)
		k.metrics.startTotal.Observe(total.Seconds())
		k.metrics.startSLI.Observe(max(total-w.excludedFromSLI(), 0).Seconds())
	}
}

// reportReadyStages reports the last stages of a pod's start: until its probes succeeded, which takes no time if it has none, and until its ready status was
// written.
func (k *Kubelet) reportReadyStages(w *worker, pod *corev1.Pod, computedAt time.Time) {
	firstProbedStart, lastStart := w.startTimes(pod)
	if computedAt.Before(lastStart) { // the first change in the status that was written was another one
		computedAt = lastStart
	}
	k.options.Stage(Stage{Pod: pod, Name: StageProbes, Start: earlier(firstProbedStart, computedAt), End: computedAt})
	k.stage(pod, StageReady, "", computedAt, nil)
}

// isProbedForReadiness reports whether a container is not ready before a probe says so.
func isProbedForReadiness(c *corev1.Container) bool {
	return c.ReadinessProbe != nil || c.StartupProbe != nil
}

// startTimes returns when the first container was started that is not ready before a probe says so, zero if there is none, and when the last container was
// started. If another process started them, it returns when this one first saw the pod.
func (w *worker) startTimes(pod *corev1.Pod) (firstProbed, last time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	firstProbed, last = w.firstProbedStartAt, w.lastStartAt
	if last.IsZero() {
		last = w.firstSeen // another process started the containers
	}
	if firstProbed.IsZero() && slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return isProbedForReadiness(&c) }) {
		firstProbed = w.firstSeen
	}
	return firstProbed, last
}

// noteStart notes that a container was started.
func (w *worker) noteStart(c *corev1.Container) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastStartAt = time.Now()
	if isProbedForReadiness(c) {
		w.firstProbedStartAt = earlier(w.firstProbedStartAt, w.lastStartAt)
	}
}

func isReady(s *corev1.PodStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

func allStarted(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodRunning && !status.IsTerminal(pod.Status.Phase) {
		return false
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Running == nil && c.State.Terminated == nil {
			return false
		}
	}
	return true
}

// timeSpan is a span of time.
type timeSpan struct{ from, to time.Time }

// excludeFromSLI leaves the time since a moment out of the pod's start SLI: images were pulled or init containers ran, which is not up to the node.
func (w *worker) excludeFromSLI(since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.excluded.from.IsZero() || since.Before(w.excluded.from) {
		w.excluded.from = since
	}
	w.excluded.to = time.Now()
}

// excludedFromSLI returns how long of the pod's start the SLI leaves out.
func (w *worker) excludedFromSLI() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.excluded.to.Sub(w.excluded.from)
}

// markReady notes that the pod is ready, and reports whether it never was before.
func (w *worker) markReady() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.everReady
	w.everReady = true
	return !before
}

// markStarted notes that the pod's start was measured, and reports whether it was not before.
func (w *worker) markStarted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.startMeasured
	w.startMeasured = true
	return !before
}
