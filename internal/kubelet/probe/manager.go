package probe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
)

// Options of a Manager.
type Options struct {
	// Exec runs the commands of exec probes.
	Exec Exec
	// Recorder takes Events about failed probes.
	Recorder record.EventRecorder
	// Report is called when the result of a probe has changed. It must not block, and may be called concurrently.
	Report func(Update)
}

// Update is a changed result of a probe.
type Update struct {
	Pod         types.UID
	Container   string
	ContainerID string // as in the pod's status
	Kind        Kind
	OK          bool
}

// Failure is why a container has to be killed.
type Failure struct {
	Kind Kind // Startup or Liveness
	// Message is the message of the Killing event: "Container web failed liveness probe". If the container is restarted, ", will be restarted" follows.
	Message string
	// GracePeriodSeconds is the probe's terminationGracePeriodSeconds; nil for the pod's.
	GracePeriodSeconds *int64
}

// Manager probes the containers of pods. It is safe for concurrent use, except that calls for one pod must not overlap.
type Manager struct {
	opts    Options
	start   time.Time
	metrics *metrics

	stopping context.Context
	stop     context.CancelFunc
	workers  sync.WaitGroup

	mu   sync.Mutex
	pods map[types.UID]map[string]*container // by name
}

// New returns a Manager. Close ends it.
func New(opts Options) *Manager {
	m := &Manager{opts: opts, start: time.Now(), metrics: newMetrics(), pods: map[types.UID]map[string]*container{}}
	m.stopping, m.stop = context.WithCancel(context.Background())
	return m
}

// Close stops all probes and waits for them.
func (m *Manager) Close() {
	m.mu.Lock()
	m.stop() // under the lock, so that Follow starts no more
	m.mu.Unlock()
	m.workers.Wait()
}

// Follow starts and stops probes by a pod's status, which must have the ids and states of containers and the pod's IP, and sets in it whether each container has
// started and is ready. pod.Status is taken as what was last reported: after a restart of the kubelet a container that was ready stays so until a probe fails.
//
// Once the pod is being deleted, liveness and startup are not probed any more; readiness is probed to the end.
func (m *Manager) Follow(pod *corev1.Pod, status *corev1.PodStatus) {
	if ended(status) {
		m.Forget(pod.UID)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range pod.Spec.Containers {
		m.follow(pod, &pod.Spec.Containers[i], status, status.ContainerStatuses)
	}
	for i := range pod.Spec.InitContainers {
		spec := &pod.Spec.InitContainers[i]
		if spec.RestartPolicy != nil && *spec.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			m.follow(pod, spec, status, status.InitContainerStatuses)
			continue
		}
		if s := find(status.InitContainerStatuses, spec.Name); s != nil {
			running := s.State.Running != nil
			s.Started = &running
			s.Ready = s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
		}
	}
}

func ended(status *corev1.PodStatus) bool {
	return status.Phase == corev1.PodSucceeded || status.Phase == corev1.PodFailed
}

func (m *Manager) follow(pod *corev1.Pod, spec *corev1.Container, status *corev1.PodStatus, statuses []corev1.ContainerStatus) {
	s := find(statuses, spec.Name)
	if s == nil || s.ContainerID == "" || s.State.Running == nil {
		m.drop(pod.UID, spec.Name)
		if s != nil {
			started := false
			s.Started, s.Ready = &started, false
		}
		return
	}
	started, ready := true, true
	if spec.StartupProbe != nil || spec.LivenessProbe != nil || spec.ReadinessProbe != nil {
		c := m.pods[pod.UID][spec.Name]
		if c != nil && c.id != s.ContainerID {
			m.drop(pod.UID, spec.Name)
			c = nil
		}
		if c == nil {
			c = m.begin(pod, spec, s, !ended(status))
		}
		c.pod, c.podIP = pod, status.PodIP
		if pod.DeletionTimestamp != nil {
			c.setTerminating()
		}
		started, ready = c.started, c.started && c.ready
	}
	s.Started, s.Ready = &started, ready
}

func find(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	if i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == name }); i >= 0 {
		return &statuses[i]
	}
	return nil
}

// Terminating says that a pod is terminating, for whatever reason: only its readiness is probed any more. For a pod with a deletion timestamp Follow does that
// itself.
func (m *Manager) Terminating(pod types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.pods[pod] {
		c.setTerminating()
	}
}

// Forget stops the probes of a pod, and drops its results and metrics.
func (m *Manager) Forget(pod types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.pods[pod] {
		m.drop(pod, name)
	}
	m.metrics.forget(pod)
}

// Failed returns why a container has to be killed, or nil. containerID is the runtime's, with its scheme or without.
func (m *Manager) Failed(pod types.UID, containerID string) *Failure {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.pods[pod] {
		if withoutScheme(c.id) == withoutScheme(containerID) {
			return c.failed
		}
	}
	return nil
}

// withoutScheme returns a container's id without the runtime's name and ://.
func withoutScheme(id string) string {
	if _, after, found := strings.Cut(id, "://"); found {
		return after
	}
	return id
}

func (m *Manager) drop(pod types.UID, name string) {
	c := m.pods[pod][name]
	if c == nil {
		return
	}
	c.end()
	delete(m.pods[pod], name)
	if len(m.pods[pod]) == 0 {
		delete(m.pods, pod)
	}
}

// container is one run of a container. All of it is guarded by the manager's lock, except what never changes.
type container struct {
	id                  string // as in the pod's status
	spec                *corev1.Container
	startedAt           time.Time
	startedAfterManager bool     // it started after the manager did
	started             bool     // the startup probe has succeeded, or there is none
	ready               bool     // the readiness probe's result
	failed              *Failure // why the container has to be killed, nil if it has not
	pod                 *corev1.Pod
	podIP               string

	startedCh      chan struct{}        // closed when started is set
	end            context.CancelFunc   // stops all probes
	cancelLiveness []context.CancelFunc // stop the startup and liveness probes
}

// begin starts the probes of a running container. If active is false it only returns the initial results, and keeps nothing.
func (m *Manager) begin(pod *corev1.Pod, spec *corev1.Container, s *corev1.ContainerStatus, active bool) *container {
	ctx, end := context.WithCancel(m.stopping)
	startedAt := s.State.Running.StartedAt.Time
	if startedAt.IsZero() {
		startedAt = time.Now()
	}
	c := &container{id: s.ContainerID, spec: spec, pod: pod, startedCh: make(chan struct{}), end: end, startedAt: startedAt,
		// A time that was read back from the API has no fractions of a second.
		startedAfterManager: startedAt.Add(time.Second).After(m.start)}
	before := reported(&pod.Status, spec.Name, s.ContainerID)
	c.ready = spec.ReadinessProbe == nil || before != nil && before.Ready
	if spec.StartupProbe == nil || before != nil && before.Started != nil && *before.Started {
		c.start()
	}
	if !active || m.stopping.Err() != nil {
		end()
		return c
	}
	for _, kind := range []Kind{Startup, Liveness, Readiness} {
		p := kind.of(spec)
		if p == nil || kind == Startup && c.started {
			continue
		}
		ctx := ctx
		if kind != Readiness {
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			c.cancelLiveness = append(c.cancelLiveness, cancel)
		}
		w := &worker{m: m, c: c, kind: kind, probe: p}
		m.workers.Go(func() { w.run(ctx) })
	}
	if m.pods[pod.UID] == nil {
		m.pods[pod.UID] = map[string]*container{}
	}
	m.pods[pod.UID][spec.Name] = c
	return c
}

// reported returns the last reported status of a running container, nil if there is none.
func reported(status *corev1.PodStatus, name, id string) *corev1.ContainerStatus {
	for _, statuses := range [][]corev1.ContainerStatus{status.ContainerStatuses, status.InitContainerStatuses} {
		if s := find(statuses, name); s != nil && s.ContainerID == id && s.State.Running != nil {
			return s
		}
	}
	return nil
}

// setTerminating stops the startup and liveness probes of a terminating container. It counts as started, so that its readiness is probed.
func (c *container) setTerminating() {
	for _, cancel := range c.cancelLiveness {
		cancel()
	}
	c.cancelLiveness, c.failed = nil, nil
	c.start()
}

func (c *container) start() {
	if !c.started {
		c.started = true
		close(c.startedCh)
	}
}

// setResult takes a result that has reached its threshold, and reports whether it differs from the one before.
func (c *container) setResult(kind Kind, p *corev1.Probe, good bool) (changed bool) {
	switch {
	case kind == Readiness:
		changed = c.ready != good
		c.ready = good
	case kind == Startup && good:
		changed = !c.started
		c.start()
	case !good:
		changed = c.failed == nil
		c.failed = &Failure{Kind: kind, Message: fmt.Sprintf("Container %s failed %s probe", c.spec.Name, strings.ToLower(string(kind))),
			GracePeriodSeconds: p.TerminationGracePeriodSeconds}
	}
	return changed
}
