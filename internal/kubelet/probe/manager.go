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
	// Recorder takes events about containers that answer badly.
	Recorder record.EventRecorder
	// Report is told of everything that is newly believed. It must not block, and may be called by several goroutines at once.
	Report func(Update)
}

// Update is something newly believed about a container.
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
	// Message is what to say in the event about the killing: "Container web failed liveness probe". Where the container will be started again,
	// ", will be restarted" follows.
	Message string
	// GracePeriodSeconds is for the container to end in, if the probe says so; otherwise it is the pod's.
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

// Close ends all probes and waits for them.
func (m *Manager) Close() {
	m.mu.Lock()
	m.stop() // under the lock, so that Follow starts no more
	m.mu.Unlock()
	m.workers.Wait()
}

// Follow learns from a pod's status how its containers are: status must have their ids and states, and the pod's IP address. It fills in
// whether each has started and is ready. pod.Status is taken as what was last reported: after a restart of the kubelet a container that was
// ready stays so until it answers otherwise.
//
// Once the pod is being deleted, liveness and startup do not matter any more; readiness is asked to the end.
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
			c.endOfLife()
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

// Terminating says that a pod is being ended, for whatever reason: only its readiness is asked any more. For a pod with a deletion timestamp
// Follow sees that itself.
func (m *Manager) Terminating(pod types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.pods[pod] {
		c.endOfLife()
	}
}

// Forget ends the probes of a pod.
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
		if bare(c.id) == bare(containerID) {
			return c.failed
		}
	}
	return nil
}

// bare returns a container's id without the runtime's name.
func bare(id string) string {
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

// container is one life of a container. All of it is guarded by the manager's lock, but for what never changes.
type container struct {
	id        string // as in the pod's status
	spec      *corev1.Container
	startedAt time.Time
	afterUs   bool // it started after this process did
	started   bool
	ready     bool
	failed    *Failure
	pod       *corev1.Pod
	podIP     string

	gate  chan struct{}        // closed when started
	end   context.CancelFunc   // of all probes
	dying []context.CancelFunc // of those that a dying pod needs no more
}

// begin starts the probes of a container that is running. Where it is not to be asked, it is not kept either.
func (m *Manager) begin(pod *corev1.Pod, spec *corev1.Container, s *corev1.ContainerStatus, ask bool) *container {
	ctx, end := context.WithCancel(m.stopping)
	startedAt := s.State.Running.StartedAt.Time
	if startedAt.IsZero() {
		startedAt = time.Now()
	}
	c := &container{id: s.ContainerID, spec: spec, pod: pod, gate: make(chan struct{}), end: end, startedAt: startedAt,
		// What is read back from the API has lost the fraction of its second.
		afterUs: startedAt.Add(time.Second).After(m.start)}
	before := reported(&pod.Status, spec.Name, s.ContainerID)
	c.ready = spec.ReadinessProbe == nil || before != nil && before.Ready
	if spec.StartupProbe == nil || before != nil && before.Started != nil && *before.Started {
		c.start()
	}
	if !ask || m.stopping.Err() != nil {
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
			c.dying = append(c.dying, cancel)
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

// reported returns what was last said of a container.
func reported(status *corev1.PodStatus, name, id string) *corev1.ContainerStatus {
	for _, statuses := range [][]corev1.ContainerStatus{status.ContainerStatuses, status.InitContainerStatuses} {
		if s := find(statuses, name); s != nil && s.ContainerID == id && s.State.Running != nil {
			return s
		}
	}
	return nil
}

// endOfLife ends what is of no use to a dying container. It counts as started, so that it is asked whether it is ready.
func (c *container) endOfLife() {
	for _, cancel := range c.dying {
		cancel()
	}
	c.dying, c.failed = nil, nil
	c.start()
}

func (c *container) start() {
	if !c.started {
		c.started = true
		close(c.gate)
	}
}

// believe takes what a probe has proved, and says whether that is new.
func (c *container) believe(kind Kind, p *corev1.Probe, good bool) (news bool) {
	switch {
	case kind == Readiness:
		news = c.ready != good
		c.ready = good
	case kind == Startup && good:
		news = !c.started
		c.start()
	case !good:
		news = c.failed == nil
		c.failed = &Failure{Kind: kind, Message: fmt.Sprintf("Container %s failed %s probe", c.spec.Name, strings.ToLower(string(kind))),
			GracePeriodSeconds: p.TerminationGracePeriodSeconds}
	}
	return news
}
