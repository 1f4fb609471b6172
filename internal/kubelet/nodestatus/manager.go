package nodestatus

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/client"
	"skiff/internal/kubelet/machine"
)

// Options of New.
type Options struct {
	Client   *client.Client // acts as system:node:NodeName
	NodeName string
	NodeIPs  []string // one per IP family, the primary one first
	Labels   map[string]string
	Taints   []corev1.Taint // the taints the node registers with
	Port     int32          // the port of the kubelet's server
	Machine  *machine.Machine
	Runtime  Runtime
	// Devices returns the resources of device plugins: what the node has and what pods may have of it. None if nil.
	Devices func() (capacity, allocatable corev1.ResourceList)
	// VolumesInUse returns the volumes that no controller may detach; none if nil.
	VolumesInUse func() []corev1.UniqueVolumeName
	// VolumesInUseReported is called with what VolumesInUse has returned, when the API has it.
	VolumesInUseReported func([]corev1.UniqueVolumeName)
	Log                  *slog.Logger
}

// Runtime is what the node's status says about the container runtime.
type Runtime interface {
	// StatusKnown reports whether the runtime has been asked for its status at least once.
	StatusKnown() bool
	// RuntimeError returns why the runtime is not ready, nil if it is.
	RuntimeError() error
	// NetworkError returns why the pod network is not ready, nil if it is.
	NetworkError() error
	// Version returns the runtime's name and version, "containerd://2.4.2".
	Version() string
	// Handlers returns the runtime handlers, which RuntimeClasses name, and the features of the runtime as a whole.
	Handlers() ([]*runtimeapi.RuntimeHandler, *runtimeapi.RuntimeFeatures)
	// ListImages lists the images on the node.
	ListImages(ctx context.Context) ([]*runtimeapi.Image, error)
}

// Pressure is what the node has too little of.
type Pressure struct{ Memory, Disk, PIDs bool }

// Conditions returns the types of the node conditions that are true.
func (p Pressure) Conditions() (types []corev1.NodeConditionType) {
	if p.Memory {
		types = append(types, corev1.NodeMemoryPressure)
	}
	if p.Disk {
		types = append(types, corev1.NodeDiskPressure)
	}
	if p.PIDs {
		types = append(types, corev1.NodePIDPressure)
	}
	return types
}

// Manager keeps the API's Node and Lease of this node.
type Manager struct {
	options   Options
	log       *slog.Logger
	recorder  record.EventRecorder // set by Run
	informers informers.SharedInformerFactory
	lister    corelisters.NodeLister
	reportNow chan struct{} // has a value when the status is to be checked before the next interval

	mu            sync.Mutex
	registered    *corev1.Node  // the node as the API returned it last, nil until this process has registered it
	reportedAt    time.Time     // when the status was last written; zero until this process has written one
	reportJitter  time.Duration // added to reportInterval until the next write
	inDoubt       bool          // the last write failed: the API may have it or not
	unschedulable bool          // spec.unschedulable when it was last observed
	pressure      Pressure
	images        []corev1.ContainerImage
	imagesAt      time.Time // when images were listed
}

const (
	checkInterval    = 10 * time.Second // how often the status is computed
	reportInterval   = 5 * time.Minute  // how often the status is written if it does not change
	firstRetry       = 100 * time.Millisecond
	maxRetry         = 7 * time.Second
	imagesInterval   = 30 * time.Second
	maxImages        = 50
	maxNamesPerImage = 5
)

// New returns a manager that does nothing before Run.
func New(o Options) *Manager {
	m := &Manager{options: o, log: o.Log, reportNow: make(chan struct{}, 1)}
	m.informers = o.Client.Informers(client.InformerOptions{Select: func(l *metav1.ListOptions) {
		l.FieldSelector = fields.OneTermEqualSelector("metadata.name", o.NodeName).String()
	}})
	m.lister = m.informers.Core().V1().Nodes().Lister()
	return m
}

// Run registers the node, and reports its status until ctx ends.
func (m *Manager) Run(ctx context.Context, recorder record.EventRecorder) {
	m.recorder = recorder
	m.informers.Core().V1().Nodes().Informer()
	m.informers.Start(ctx.Done())
	// The node is registered once the runtime's status is known: then it can be ready from the beginning.
	for deadline := time.Now().Add(500 * time.Millisecond); !m.options.Runtime.StatusKnown() && time.Now().Before(deadline) && ctx.Err() == nil; {
		sleep(ctx, 5*time.Millisecond)
	}
	m.register(ctx)
	timer := time.NewTimer(checkInterval)
	defer timer.Stop()
	for {
		next := checkInterval
		if err := m.report(ctx); err != nil && ctx.Err() == nil {
			m.log.Warn("failed to report the node's status; retrying", "node", m.options.NodeName, "error", err)
			next = time.Second
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-m.reportNow:
		}
	}
}

// ReportNow has the status computed now, and written if it changed.
func (m *Manager) ReportNow() {
	select {
	case m.reportNow <- struct{}{}:
	default: // a report is due already
	}
}

// SetPressure sets what the node has too little of, and reports a change at once.
func (m *Manager) SetPressure(p Pressure) {
	m.mu.Lock()
	changed := m.pressure != p
	m.pressure = p
	m.mu.Unlock()
	if changed {
		m.ReportNow()
	}
}

// Pressure returns what the node has too little of.
func (m *Manager) Pressure() Pressure {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pressure
}

// Node returns the node as the API has it, with the allocatable resources that this machine has: the API may not have those yet.
func (m *Manager) Node() *corev1.Node {
	node, err := m.lister.Get(m.options.NodeName)
	if err != nil {
		node = m.initialNode()
	}
	n := *node
	_, allocatable := m.resources()
	n.Status.Allocatable = withExtended(allocatable, node.Status.Allocatable)
	return &n
}

// Ref returns the reference that Events about the node have.
func (m *Manager) Ref() *corev1.ObjectReference {
	ref := &corev1.ObjectReference{Kind: "Node", Name: m.options.NodeName}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.registered != nil {
		ref.UID = m.registered.UID
	}
	return ref
}

// setReported notes that the node's status was just written.
func (m *Manager) setReported(node *corev1.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.registered, m.reportedAt, m.inDoubt = node, time.Now(), false
	m.reportJitter = time.Duration(float64(reportInterval) * (rand.Float64() - 0.5)) // so that not all nodes report at the same time
}

// reportedUID returns the node's UID once this process has reported its status, "" before.
func (m *Manager) reportedUID() types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reportedAt.IsZero() {
		return ""
	}
	return m.registered.UID
}

// report writes the node's status if it has changed, or was not written for reportInterval.
func (m *Manager) report(ctx context.Context) error {
	m.mu.Lock()
	node, due := m.registered, m.inDoubt || time.Since(m.reportedAt) > reportInterval+m.reportJitter
	m.mu.Unlock()
	if node == nil {
		return errors.New("the node is not registered yet")
	}
	if observed, err := m.lister.Get(m.options.NodeName); err == nil && newer(observed.ResourceVersion, node.ResourceVersion) {
		node = observed
	}
	m.recordSchedulable(node)
	status := m.status(ctx, node)
	if !due && statusEqual(&node.Status, status) {
		m.inUseReported(status)
		return nil
	}
	patch, err := statusPatch(node, status)
	if err != nil {
		return err
	}
	nodes := m.options.Client.Kubernetes().CoreV1().Nodes()
	updated, err := nodes.Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.inDoubt = true
		return err // a node that somebody deleted stays deleted until the kubelet is restarted
	}
	m.recordConditions(node, updated)
	m.setReported(updated)
	m.inUseReported(status)
	return nil
}

func (m *Manager) inUseReported(status *corev1.NodeStatus) {
	if m.options.VolumesInUseReported != nil {
		m.options.VolumesInUseReported(status.VolumesInUse)
	}
}

// newer reports whether resourceVersion a is later than b.
func newer(a, b string) bool { return len(a) > len(b) || len(a) == len(b) && a > b }

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
