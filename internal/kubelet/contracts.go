package kubelet

import (
	"context"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Volumes makes the volumes of pods: volume.Manager, or a test's. Calls about one pod do not overlap.
type Volumes interface {
	// SetUp makes all volumes of a pod, or brings those that are there up to date.
	SetUp(ctx context.Context, pod *corev1.Pod) error
	// Mounts are what of a pod's volumes a container sees, and where.
	Mounts(pod *corev1.Pod, container *corev1.Container, env []*runtimeapi.KeyValue) ([]*runtimeapi.Mount, error)
	// Devices are the devices of the node that a container has.
	Devices(pod *corev1.Pod, container *corev1.Container) ([]*runtimeapi.Device, error)
	// Path is the directory of a volume on the node.
	Path(pod *corev1.Pod, volume string) (string, error)
	// TearDown removes all volumes of a pod. Nothing of the pod runs any more.
	TearDown(ctx context.Context, uid types.UID) error
	// Left are the pods of which there are volumes.
	Left() ([]types.UID, error)
}

// Cgroups makes the control groups of pods: cgroup.Manager, or a test's.
type Cgroups interface {
	// Setup makes those that all pods share.
	Setup() error
	// Ensure makes that of a pod, with the pod's limits, and returns what the runtime is to be told of it.
	Ensure(pod *corev1.Pod) (parent string, err error)
	// Remove removes that of a pod, and kills what is left in it.
	Remove(uid types.UID) error
	// Left are the pods that have one.
	Left() ([]types.UID, error)
}

// HostPorts leads ports of the node to pods. Calls do not overlap.
type HostPorts interface {
	// Restore says which ports lead to which pods, in place of whatever the kernel has. It is called once, before all else.
	Restore(all map[types.UID]PodPorts) error
	// Set has these ports of the node lead to a pod, in place of those that did.
	Set(uid types.UID, ports PodPorts) error
	// Remove has no port of the node lead to a pod.
	Remove(uid types.UID) error
}

// PodPorts are the ports of the node that lead to a pod.
type PodPorts struct {
	IPs   []netip.Addr // of the pod
	Ports []HostPort
}

// HostPort is a port of the node that leads to a port of a pod.
type HostPort struct {
	Protocol      corev1.Protocol
	HostIP        netip.Addr // an address of the node; any but loopback if it is not valid or unspecified
	HostPort      uint16
	ContainerPort uint16
}

// ReservedPort is a port of the node that a program of the node's own listens on, and that pods cannot have as a host port.
type ReservedPort struct {
	Protocol corev1.Protocol
	IP       netip.Addr // all addresses if it is not valid or unspecified
	Port     uint16
	Use      string // whose it is: "the kubelet"
}

// Stage is a part of a pod's start, for the journey.
type Stage struct {
	Pod        *corev1.Pod
	Name       string // "volumes", "sandbox", "image", "create", "start", …
	Container  string // if it is about one
	Sandbox    string // its id, if it made one
	Start, End time.Time
	Err        error
}

// The stages that this package reports. "pickup" is from the pod's being bound to its worker's beginning.
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
