package cri

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime is a container runtime as the kubelet uses it. Every call except Events has a timeout, whatever its context is. Errors are gRPC statuses; see
// IsNotFound. All methods may be called concurrently.
type Runtime interface {
	Sandboxes
	Containers
	Images
	Streams

	Version(ctx context.Context) (*runtimeapi.VersionResponse, error)
	// Status returns whether the runtime and the network are ready.
	Status(ctx context.Context) (*runtimeapi.StatusResponse, error)
	// Config returns which cgroup driver the runtime uses.
	Config(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error)
	// Events calls each for every container event until ctx ends or the connection breaks, and returns why. connected is called when events are being
	// received: the caller has to list what happened before. each must not block: the runtime waits for it.
	Events(ctx context.Context, connected func(), each func(*runtimeapi.ContainerEventResponse)) error
}

// Sandboxes are the calls about pod sandboxes.
type Sandboxes interface {
	RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (id string, err error)
	StopPodSandbox(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
	PodSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error)
	ListPodSandboxes(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListPodSandboxStats(ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error)
}

// Containers are the calls about containers.
type Containers interface {
	CreateContainer(ctx context.Context, sandbox string, config *runtimeapi.ContainerConfig, of *runtimeapi.PodSandboxConfig) (id string, err error)
	StartContainer(ctx context.Context, id string) error
	// StopContainer sends SIGTERM, after the grace period SIGKILL, and returns when the container has exited.
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
	ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error)
	UpdateContainerResources(ctx context.Context, id string, to *runtimeapi.LinuxContainerResources) error
	ReopenContainerLog(ctx context.Context, id string) error
	// ExecSync runs a command in a container and waits for it. A command that exits with a code other than 0 is no error.
	ExecSync(ctx context.Context, id string, command []string, limit time.Duration) (*runtimeapi.ExecSyncResponse, error)
}

// Images are the calls about images.
type Images interface {
	PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, of *runtimeapi.PodSandboxConfig) (ref string, err error)
	// ImageStatus returns nil if the image is not on the node.
	ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error)
	ListImages(ctx context.Context) ([]*runtimeapi.Image, error)
	RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// Streams are the calls that return the URLs where the runtime serves exec, attach and port-forward.
type Streams interface {
	Exec(ctx context.Context, request *runtimeapi.ExecRequest) (url string, err error)
	Attach(ctx context.Context, request *runtimeapi.AttachRequest) (url string, err error)
	PortForward(ctx context.Context, request *runtimeapi.PortForwardRequest) (url string, err error)
}
