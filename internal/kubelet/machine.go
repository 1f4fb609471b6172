package kubelet

import (
	"bufio"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Version is the version of Kubernetes whose kubelet this is.
const Version = "v1.37.1"

// machine is what the kubelet runs on.
type machine struct {
	memory      int64 // in bytes
	capacity    corev1.ResourceList
	allocatable corev1.ResourceList
	info        corev1.NodeSystemInfo
}

// What is kept from pods, so that the node stays alive until it can end some: as much as when pods are ended.
const (
	reservedMemory      = 100 << 20
	reservedDiskPercent = 10
)

// setAllocatable works out what pods may use of what there is.
func (m *machine) setAllocatable() {
	m.allocatable = m.capacity.DeepCopy()
	memory := m.allocatable[corev1.ResourceMemory]
	if memory.Value() > reservedMemory {
		memory.Sub(*resource.NewQuantity(reservedMemory, resource.BinarySI))
	}
	m.allocatable[corev1.ResourceMemory] = memory
	if disk, ok := m.capacity[corev1.ResourceEphemeralStorage]; ok {
		m.allocatable[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(disk.Value()/100*(100-reservedDiskPercent), resource.BinarySI)
	}
}

// readLine is the first line of a file, empty if there is none.
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

// osImage is what the operating system calls itself.
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
