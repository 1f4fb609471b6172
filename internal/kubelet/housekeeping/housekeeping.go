package housekeeping

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/eviction"
	"skiff/internal/kubelet/nodestatus"
	"skiff/internal/kubelet/podlogs"
	"skiff/internal/kubelet/volume"
)

// Options of New.
type Options struct {
	Runtime  Runtime
	Pods     Pods
	Node     Node
	Logs     *podlogs.Manager
	Images   ImageRecords
	Recorder record.EventRecorder
	RootDir  string // the kubelet's directory, whose pods directory has a directory per pod
	Log      *slog.Logger

	// Leftovers list the pods that the node has something of besides sandboxes and directories: volumes, cgroups.
	Leftovers []func() ([]types.UID, error)

	// Measure returns how much the node has left. It is called once per EvictionInterval.
	Measure          func(context.Context) (eviction.Signals, error)
	Thresholds       eviction.Thresholds
	EvictionInterval time.Duration
}

// Runtime is the part of the container runtime that housekeeping needs.
type Runtime interface {
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
	RemoveContainer(ctx context.Context, id string) error
	ListPodSandboxes(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListPodSandboxStats(ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error)
	RemovePodSandbox(ctx context.Context, id string) error
	ListImages(ctx context.Context) ([]*runtimeapi.Image, error)
	RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// Pods are the node's pods and their workers.
type Pods interface {
	// List returns the pods that the API has for this node.
	List() ([]*corev1.Pod, error)
	// HasWorker reports whether a pod has a worker. What belongs to a pod without one can be removed.
	HasWorker(uid types.UID) bool
	// Running returns a pod that is neither terminating nor finished, nil if it is or there is no such pod.
	Running(uid types.UID) *corev1.Pod
	// VolumeUsage returns how much a pod's volumes use.
	VolumeUsage(ctx context.Context, uid types.UID) ([]volume.Usage, error)
	// Evict has a pod fail because of the node, and waits a while for it to end. diskFull says that the node's disk has no room left at all.
	Evict(ctx context.Context, uid types.UID, message string, diskFull bool)
	// RemoveOrphan starts a worker that removes what is left of a pod that the API does not know.
	RemoveOrphan(uid types.UID)
}

// Node is the node's status: nodestatus.Manager.
type Node interface {
	SetPressure(nodestatus.Pressure)
	Ref() *corev1.ObjectReference
}

// ImageRecords remember with which credentials images were pulled: image.Puller.
type ImageRecords interface {
	// Keep drops the records of all images but these, by id.
	Keep(present map[string]bool) error
}

// Manager does the housekeeping of a node.
type Manager struct {
	options Options
	log     *slog.Logger
}

// New returns a manager. It does nothing by itself.
func New(o Options) *Manager { return &Manager{options: o, log: o.Log} }

const (
	containersInterval = time.Minute
	imagesInterval     = 5 * time.Minute
)

// CollectGarbage removes exited containers, dead sandboxes, dangling logs and unused images, each at its interval, until ctx ends. All pods of the API
// must have their workers.
func (m *Manager) CollectGarbage(ctx context.Context) {
	m.options.Logs.RemoveDangling(m.options.Pods.HasWorker) // the last process may have ended while it removed a pod
	uses := map[string]imageUse{}
	var imagesAt time.Time
	for {
		sleep(ctx, containersInterval)
		if ctx.Err() != nil {
			return
		}
		m.removeExitedContainers(ctx)
		m.removeDeadSandboxes(ctx)
		m.options.Logs.RemoveDangling(m.options.Pods.HasWorker)
		if time.Since(imagesAt) > imagesInterval {
			imagesAt = time.Now()
			m.collectImages(ctx, uses)
		}
	}
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
