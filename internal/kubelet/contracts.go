package kubelet

import (
	"context"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Volumes sets up the volumes of pods: volume.Manager, or a test's. Calls for one pod do not overlap.
type Volumes interface {
	// SetUp sets up all volumes of a pod, or refreshes those that are set up.
	SetUp(ctx context.Context, pod *corev1.Pod) error
	// Mounts returns the mounts of a pod's volumes in a container.
	Mounts(pod *corev1.Pod, container *corev1.Container, env []*runtimeapi.KeyValue) ([]*runtimeapi.Mount, error)
	// Devices returns the block devices of a container.
	Devices(pod *corev1.Pod, container *corev1.Container) ([]*runtimeapi.Device, error)
	// Path returns the directory of a volume on the node.
	Path(pod *corev1.Pod, volume string) (string, error)
	// TearDown removes all volumes of a pod. None of its containers may run.
	TearDown(ctx context.Context, uid types.UID) error
	// Left returns the pods that have volumes on the node.
	Left() ([]types.UID, error)
}

// Cgroups manages the cgroups of pods: cgroup.Manager, or a test's.
type Cgroups interface {
	// Setup creates the cgroups above those of pods.
	Setup() error
	// Ensure creates the cgroup of a pod, with the pod's limits, and returns the cgroup parent for the runtime.
	Ensure(pod *corev1.Pod) (parent string, err error)
	// Remove kills what is left in the cgroup of a pod, and removes it.
	Remove(uid types.UID) error
	// Left returns the pods that have a cgroup.
	Left() ([]types.UID, error)
}

// HostPorts forwards host ports to pods. Calls do not overlap.
type HostPorts interface {
	// Restore replaces whatever the kernel forwards with these host ports. It is called once, before all other calls.
	Restore(all map[types.UID]PodPorts) error
	// Set replaces the host ports of a pod.
	Set(uid types.UID, ports PodPorts) error
	// Remove removes the host ports of a pod.
	Remove(uid types.UID) error
}

// PodPorts are the host ports of a pod.
type PodPorts struct {
	IPs   []netip.Addr // the IPs of the pod
	Ports []HostPort
}

// HostPort is a port of the node that is forwarded to a port of a pod.
type HostPort struct {
	Protocol      corev1.Protocol
	HostIP        netip.Addr // an address of the node; any but loopback if it is not valid or unspecified
	HostPort      uint16
	ContainerPort uint16
}

// ReservedPort is a port that a program of the node listens on, and that pods cannot have as a host port.
type ReservedPort struct {
	Protocol corev1.Protocol
	IP       netip.Addr // all addresses if it is not valid or unspecified
	Port     uint16
	Use      string // the program, for messages: "the kubelet"
}

// Stage is a stage of a pod's start, for the journey.
type Stage struct {
	Pod        *corev1.Pod
	Name       string // "volumes", "sandbox", "image", "create", "start", …
	Container  string // the container it is about, "" if it is about the pod
	Sandbox    string // the id of the sandbox that was created
	Start, End time.Time
	Err        error
}

// The stages that this package reports. StagePickup lasts from when the kubelet first saw the pod until its worker syncs it.
const (
	StagePickup  = "kubelet pickup"
	StageVolumes = "volumes"
	StageSandbox = "sandbox"
	StageImage   = "image"
	StageCreate  = "create"
	StageStart   = "start"
	StageProbes  = "probes"
	StageReady   = "Ready"
)
