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
	startSLI    prometheus.Histogram // from the pod's creation to its being seen running, without pulls and init containers
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

// Metrics are what the kubelet measures of itself.
func (k *Kubelet) Metrics() prometheus.Gatherer { return k.metrics.registry }

// ProbeMetrics are what there is to say of probes, of which there may be many.
func (k *Kubelet) ProbeMetrics() prometheus.Gatherer { return k.metrics.probes }

func (m *metrics) pulled(took time.Duration, _ uint64) { m.pulls.Observe(took.Seconds()) }

// count counts the containers that have ended since a pod's last status.
func (m *metrics) count(before, now *corev1.PodStatus) {
	for _, list := range []struct {
		kind        kind
		before, now []corev1.ContainerStatus
	}{
		{initContainer, before.InitContainerStatuses, now.InitContainerStatuses}, {ordinaryContainer, before.ContainerStatuses, now.ContainerStatuses},
		{ephemeralContainer, before.EphemeralContainerStatuses, now.EphemeralContainerStatuses},
	} {
		for _, c := range list.now {
			had := slices.ContainsFunc(list.before, func(b corev1.ContainerStatus) bool { return b.Name == c.Name && b.State.Terminated != nil })
			if t := c.State.Terminated; t != nil && !had {
				m.ends.WithLabelValues(string(list.kind), strconv.Itoa(int(t.ExitCode)), t.Reason).Inc()
			}
		}
	}
}

// statusWritten is told of each status that reached the API.
func (k *Kubelet) statusWritten(pod *corev1.Pod, decided time.Time) {
	if !decided.IsZero() {
		k.metrics.statusSync.Observe(time.Since(decided).Seconds())
	}
	k.mu.Lock()
	w := k.workers[pod.UID]
	k.mu.Unlock()
	if w == nil {
		return
	}
	if isReady(&pod.Status) && w.markReady() {
		k.tellReadyStages(w, pod, decided)
	}
	if allStarted(pod) && w.markStarted() {
		total := time.Since(pod.CreationTimestamp.Time)
		k.metrics.startTotal.Observe(total.Seconds())
		k.metrics.startSLI.Observe(max(total-w.excused(), 0).Seconds())
	}
}

// tellReadyStages tells of the last stages of a pod's start: what its probes took to be satisfied, no time if nobody asked for any, and reporting
// that it is ready.
func (k *Kubelet) tellReadyStages(w *worker, pod *corev1.Pod, decided time.Time) {
	probed, launched := w.launches(pod)
	if decided.Before(launched) { // what was decided first, and written together with this, was something else
		decided = launched
	}
	k.options.Stage(Stage{Pod: pod, Name: StageProbes, Start: earlier(probed, decided), End: decided})
	k.stage(pod, StageReady, "", decided, nil)
}

// awaited says whether a container is not ready before a probe says so.
func awaited(c *corev1.Container) bool { return c.ReadinessProbe != nil || c.StartupProbe != nil }

// launches are when the first of a pod's containers was started that probes have to find ready, zero if there is none, and when the last one was, all as
// far as this process knows.
func (w *worker) launches(pod *corev1.Pod) (probed, last time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	probed, last = w.probed, w.launched
	if last.IsZero() {
		last = w.seen // another process started them
	}
	if probed.IsZero() && slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return awaited(&c) }) {
		probed = w.seen
	}
	return probed, last
}

// launch notes that a container was started.
func (w *worker) launch(c *corev1.Container) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.launched = time.Now()
	if awaited(c) {
		w.probed = earlier(w.probed, w.launched)
	}
}

func isReady(s *corev1.PodStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

func allStarted(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodRunning && !status.Ended(pod.Status.Phase) {
		return false
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Running == nil && c.State.Terminated == nil {
			return false
		}
	}
	return true
}

// excuse is what of a pod's start is not the node's fault: the time for which images were pulled, and init containers ran.
type excuse struct{ from, to time.Time }

// excusing counts the time since a moment as not the node's fault.
func (w *worker) excusing(since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.excuse.from.IsZero() || since.Before(w.excuse.from) {
		w.excuse.from = since
	}
	w.excuse.to = time.Now()
}

func (w *worker) excused() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.excuse.to.Sub(w.excuse.from)
}

// markReady notes that the pod is ready. It says whether it never was before.
func (w *worker) markReady() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.wasReady
	w.wasReady = true
	return !before
}

// markStarted notes that the pod's start is over. It says whether it was not before.
func (w *worker) markStarted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.started
	w.started = true
	return !before
}
