package machine

import (
	"bufio"
	"context"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/cgroup"
)

// KubeletVersion is the version of Kubernetes whose kubelet this is.
const KubeletVersion = "v1.37.1"

// Machine is what the kubelet runs on.
type Machine struct {
	Memory      int64 // the node's memory in bytes
	Capacity    corev1.ResourceList
	Allocatable corev1.ResourceList // the part of Capacity that pods may use
	Info        corev1.NodeSystemInfo
}

// Options of Read.
type Options struct {
	RootDir  string              // a directory on the disk whose size is the ephemeral-storage capacity
	MaxPods  int                 // the pods capacity
	Capacity corev1.ResourceList // overrides what the machine has, resource by resource
}

// ImageFs is the part of the container runtime that knows where images are.
type ImageFs interface {
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// PodsUsage returns what all pods use together. It may fail while there are no pods.
type PodsUsage func() (cgroup.Usage, error)

// What is kept from pods, so that the node stays alive until it can evict some: the default eviction thresholds.
const (
	reservedMemory      = 100 << 20
	reservedDiskPercent = 10
)

// setAllocatable derives what pods may use from the capacity.
func (m *Machine) setAllocatable() {
	m.Allocatable = m.Capacity.DeepCopy()
	memory := m.Allocatable[corev1.ResourceMemory]
	if memory.Value() > reservedMemory {
		memory.Sub(*resource.NewQuantity(reservedMemory, resource.BinarySI))
	}
	m.Allocatable[corev1.ResourceMemory] = memory
	if disk, ok := m.Capacity[corev1.ResourceEphemeralStorage]; ok {
		m.Allocatable[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(disk.Value()/100*(100-reservedDiskPercent), resource.BinarySI)
	}
}

// readLine returns the first line of a file, or "" if the file cannot be read.
func readLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Scan()
	return strings.TrimSpace(s.Text())
}

// osImage returns the operating system's PRETTY_NAME from os-release.
func osImage() string {
	data, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "Unknown"
	}
	for line := range strings.Lines(string(data)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			return strings.Trim(name, `"'`)
		}
	}
	return "Unknown"
}
