package eviction

import (
	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "k8s.io/api/core/v1"
)

// Resources that a node can run out of and corev1 has no names for.
const (
	Inodes corev1.ResourceName = "inodes"
	PIDs   corev1.ResourceName = "pids"
)

// Amount is the capacity of a resource, and how much of it is available.
type Amount struct{ Available, Capacity int64 }

// Signals are the eviction signals of a node. An Amount without capacity was not measured.
type Signals struct {
	Memory                  Amount // in bytes
	NodeDisk, ImageDisk     Amount // the file systems of pods and of images, in bytes
	NodeInodes, ImageInodes Amount
	PIDs                    Amount
}

// Thresholds are the available amounts below which pods are evicted. Zero is no threshold.
type Thresholds struct {
	Memory                                  int64 // bytes
	DiskPercent, InodesPercent, PIDsPercent int64 // percent of the capacity
	DiskMost                                int64 // caps the threshold of large disks, in bytes; no cap if zero
}

// Default are the thresholds of a node. That of disks is lower than upstream's 10 %: 10 % of a large disk is a lot, and a disk that something else than pods
// fills does not endanger pods.
var Default = Thresholds{Memory: 100 << 20, DiskPercent: 5, DiskMost: 2 << 30, InodesPercent: 5, PIDsPercent: 1}

// Shortage is a threshold that is met: a resource that the node is short of.
type Shortage struct {
	Resource             corev1.ResourceName
	Condition            corev1.NodeConditionType
	Threshold, Available *resource.Quantity
}

// Met returns the thresholds that are met, the most urgent first.
func (t Thresholds) Met(s Signals) (out []Shortage) {
	check := func(a Amount, least int64, name corev1.ResourceName, condition corev1.NodeConditionType, format resource.Format) {
		if a.Capacity > 0 && least > 0 && a.Available < least {
			out = append(out, Shortage{name, condition, resource.NewQuantity(least, format), resource.NewQuantity(a.Available, format)})
		}
	}
	check(s.Memory, t.Memory, corev1.ResourceMemory, corev1.NodeMemoryPressure, resource.BinarySI)
	check(s.NodeDisk, t.leastDisk(s.NodeDisk), corev1.ResourceEphemeralStorage, corev1.NodeDiskPressure, resource.BinarySI)
	check(s.ImageDisk, t.leastDisk(s.ImageDisk), corev1.ResourceEphemeralStorage, corev1.NodeDiskPressure, resource.BinarySI)
	check(s.NodeInodes, s.NodeInodes.Capacity/100*t.InodesPercent, Inodes, corev1.NodeDiskPressure, resource.DecimalSI)
	check(s.ImageInodes, s.ImageInodes.Capacity/100*t.InodesPercent, Inodes, corev1.NodeDiskPressure, resource.DecimalSI)
	check(s.PIDs, s.PIDs.Capacity*t.PIDsPercent/100, PIDs, corev1.NodePIDPressure, resource.DecimalSI)
	return out
}

func (t Thresholds) leastDisk(a Amount) int64 {
	least := a.Capacity / 100 * t.DiskPercent
	if t.DiskMost > 0 {
		least = min(least, t.DiskMost)
	}
	return least
}
